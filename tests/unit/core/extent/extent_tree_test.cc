// Properties of extent trees against a map of blocks: random insertions, conversions and truncations on 1 KiB blocks,
// where a node holds 84 entries, judged by our own lookups and by e2fsck.
#include "core/extent/extent_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_node.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {
namespace {

struct ModelBlock {
  BlockNumber physical;
  bool unwritten;
};

// One file of a rig beside its model.
class ModelledFile {
 public:
  ModelledFile(MappingRig* rig, InodeNumber inode, uint32_t seed)
      : rig_(*rig), inode_(rig->Load(inode)), random_(seed) {}

  uint32_t Random(uint32_t below) { return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_); }
  const std::map<LogicalBlock, ModelBlock>& model() const { return model_; }
  uint32_t Depth() {
    MutexLock lock(inode_->mutex);
    return ExtentNode(inode_->block_area.data()).depth();
  }

  uint64_t TreeBlocks() {
    MutexLock lock(inode_->mutex);
    return inode_->blocks_512 / rig_.SectorsPerBlock() - model_.size();
  }

  // Maps what is free of [logical, logical + length), as far as one allocation reaches. False: no space.
  bool Insert(LogicalBlock logical, uint32_t length, bool unwritten, BlockNumber goal);
  void Convert(LogicalBlock logical, uint32_t length);
  void Truncate(LogicalBlock first);
  void CheckLookup(LogicalBlock logical);
  void CheckAll();
  // A goal that continues the block before, so that extents can merge.
  BlockNumber ContiguousGoal(LogicalBlock logical) const {
    const auto before = logical == 0 ? model_.end() : model_.find(logical - 1);
    return before == model_.end() ? 0 : before->second.physical + 1;
  }

 private:
  void Save(Handle& handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex) {
    const uint64_t end = model_.empty() ? 0 : uint64_t{model_.rbegin()->first} + 1;
    inode_->size_bytes = end * rig_.geometry().block_bytes;
    rig_.Store(handle, *inode_);
  }

  MappingRig& rig_;
  const InodeRef inode_;
  std::mt19937 random_;
  std::map<LogicalBlock, ModelBlock> model_;
};

bool ModelledFile::Insert(LogicalBlock logical, uint32_t length, bool unwritten, BlockNumber goal) {
  while (length > 0 && model_.contains(logical)) {
    ++logical;
    --length;
  }
  const auto next = model_.lower_bound(logical);
  if (next != model_.end()) length = std::min(length, next->first - logical);
  if (length == 0) return true;
  auto range = rig_.context().blocks->Reserve(goal, length, /*privileged=*/true);
  if (!range.ok()) {
    EXPECT_EQ(StatusToErrno(range.status()), ENOSPC);
    return false;
  }
  MutexLock lock(inode_->mutex);
  ExtentTree tree(&rig_.context(), inode_.get());
  const uint32_t tree_credits = tree.InsertCredits();
  const uint64_t blocks_before = inode_->blocks_512;
  const auto area_before = inode_->block_area;
  Handle handle = rig_.Start(tree_credits + 5);
  const uint32_t before = handle.credits_left();
  const absl::Status status = tree.Insert(handle, logical, range->start, range->count, unwritten, /*promised=*/false);
  EXPECT_LE(before - handle.credits_left(), tree_credits);
  if (!status.ok()) {
    EXPECT_EQ(StatusToErrno(status), ENOSPC) << status;
    EXPECT_EQ(inode_->blocks_512, blocks_before);
    EXPECT_EQ(inode_->block_area, area_before);
    rig_.context().blocks->Unreserve(*range);
    return false;
  }
  const absl::Status committed = rig_.context().blocks->Commit(handle, *range);
  EXPECT_TRUE(committed.ok()) << committed;
  for (uint32_t i = 0; i < range->count; ++i) model_[logical + i] = {range->start + i, unwritten};
  Save(handle);
  return true;
}

void ModelledFile::Convert(LogicalBlock logical, uint32_t length) {
  // Only mapped blocks can be converted.
  uint32_t mapped = 0;
  while (mapped < length && model_.contains(logical + mapped)) ++mapped;
  if (mapped == 0) return;
  MutexLock lock(inode_->mutex);
  ExtentTree tree(&rig_.context(), inode_.get());
  const auto first = tree.Lookup(logical);
  ASSERT_TRUE(first.ok()) << first.status();
  // One extent at a time costs what InsertCredits says.
  mapped = std::min(mapped, first->length);
  const uint32_t tree_credits = tree.InsertCredits();
  Handle handle = rig_.Start(tree_credits + 1);
  const uint32_t before = handle.credits_left();
  const absl::Status status = tree.ConvertToWritten(handle, logical, mapped, /*promised=*/false);
  EXPECT_LE(before - handle.credits_left(), tree_credits);
  if (!status.ok()) {
    EXPECT_EQ(StatusToErrno(status), ENOSPC) << status;
    return;
  }
  for (uint32_t i = 0; i < mapped; ++i) model_[logical + i].unwritten = false;
  Save(handle);
}

void ModelledFile::Truncate(LogicalBlock first) {
  MutexLock lock(inode_->mutex);
  ExtentTree tree(&rig_.context(), inode_.get());
  for (bool done = false; !done;) {
    Handle handle = rig_.Start(ExtentTree::kTruncateCredits + 1);
    const uint64_t blocks_before = inode_->blocks_512;
    const absl::StatusOr<bool> result = tree.TruncateFrom(handle, first);
    ASSERT_TRUE(result.ok()) << result.status();
    done = *result;
    ASSERT_TRUE(done || inode_->blocks_512 < blocks_before) << "no progress";
    if (done) model_.erase(model_.lower_bound(first), model_.end());
    Save(handle);
  }
}

void ModelledFile::CheckLookup(LogicalBlock logical) {
  MutexLock lock(inode_->mutex);
  ExtentTree tree(&rig_.context(), inode_.get());
  const absl::StatusOr<Mapping> mapping = tree.Lookup(logical);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_EQ(mapping->logical, logical);
  const auto expected = model_.find(logical);
  if (expected == model_.end()) {
    const auto next = model_.upper_bound(logical);
    ASSERT_TRUE(mapping->is_hole());
    ASSERT_EQ(mapping->length, (next == model_.end() ? kLogicalBlockEnd : next->first) - logical);
    return;
  }
  for (uint32_t i = 0; i < mapping->length; ++i) {
    const auto block = model_.find(logical + i);
    ASSERT_NE(block, model_.end());
    ASSERT_EQ(block->second.physical, mapping->physical + i);
    ASSERT_EQ(block->second.unwritten, mapping->unwritten);
  }
}

void ModelledFile::CheckAll() {
  MutexLock lock(inode_->mutex);
  ExtentTree tree(&rig_.context(), inode_.get());
  auto expected = model_.begin();
  const absl::Status status = tree.ForEach(0, [&](const Mapping& mapping) {
    for (uint32_t i = 0; i < mapping.length; ++i, ++expected) {
      const bool same = expected != model_.end() && expected->first == mapping.logical + i &&
                        expected->second.physical == mapping.physical + i &&
                        expected->second.unwritten == mapping.unwritten;
      EXPECT_TRUE(same) << "logical block " << mapping.logical + i;
      if (!same) return false;
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(expected, model_.end());
}

std::vector<uint8_t> OneFileImage(uint32_t size_mib, const std::string& options) {
  return MakeMappingImage(size_mib, options, "write /dev/null file\n");
}

class ExtentTreeProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(ExtentTreeProperty, RandomOperationsMatchTheModel) {
  const uint32_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  // Small groups: a run spans several of them. Every other seed without checksums.
  const std::vector<uint8_t> image =
      OneFileImage(32, absl::StrCat("-b 1024 -g 1024 -J size=2 -N 256", seed % 2 == 0 ? "" : " -O ^metadata_csum"));
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  ModelledFile file(&rig, InodeOfPath(image, "/file"), seed);
  const uint32_t space = 1U << (9 + seed % 5);
  uint32_t deepest = 0;
  for (int step = 0; step < 3000 && !HasFailure(); ++step) {
    const uint32_t choice = file.Random(100);
    const LogicalBlock logical = file.Random(space);
    if (choice < 60) {
      const bool contiguous = file.Random(2) == 0;
      const BlockNumber goal = contiguous ? file.ContiguousGoal(logical)
                                          : 1 + file.Random(static_cast<uint32_t>(rig.geometry().block_count - 1));
      file.Insert(logical, 1 + file.Random(file.Random(10) == 0 ? 200 : 4), file.Random(2) == 0, goal);
    } else if (choice < 80) {
      file.Convert(logical, 1 + file.Random(50));
    } else if (choice < 99) {
      file.CheckLookup(logical);
    } else if (file.Random(4) == 0) {
      file.Truncate(file.Random(4) == 0 ? logical : space - space / 8);
      rig.Commit();
    }
    deepest = std::max(deepest, file.Depth());
  }
  file.CheckAll();
  EXPECT_GE(deepest, 1U);
  const std::string after_operations = Complaints(rig.Finish());
  EXPECT_EQ(after_operations, "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExtentTreeProperty, testing::Range(1U, 11U));

TEST(ExtentTree, EveryOtherBlockInOrderFillsLeavesAndGrowsToDepth3) {
  const std::vector<uint8_t> image = OneFileImage(96, "-b 1024 -J size=4 -N 256");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  ModelledFile file(&rig, InodeOfPath(image, "/file"), 1);
  constexpr uint32_t kExtents = 4 * 84 * 84 + 100;
  for (uint32_t i = 0; i < kExtents; ++i) ASSERT_TRUE(file.Insert(2 * i, 1, false, 0));
  EXPECT_EQ(file.Depth(), 3U);
  file.CheckAll();
  for (uint32_t i = 0; i < 1000; ++i) file.CheckLookup(file.Random(2 * kExtents + 10));
  // Dense: as many leaves as needed, their index nodes and the one above.
  const uint64_t leaves = (kExtents + 83) / 84;
  EXPECT_LE(file.TreeBlocks(), leaves + (leaves + 83) / 84 + 2);
  file.Truncate(101);
  EXPECT_EQ(file.Depth(), 1U);
  file.CheckAll();
  file.Truncate(7);
  EXPECT_EQ(file.Depth(), 0U);
  file.CheckAll();
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

TEST(ExtentTree, DownwardsAndShuffledOrders) {
  for (const bool shuffled : {false, true}) {
    const std::vector<uint8_t> image = OneFileImage(48, "-b 1024 -J size=2 -N 256");
    MappingRig rig(image);
    ASSERT_TRUE(rig.usable());
    ModelledFile file(&rig, InodeOfPath(image, "/file"), 7);
    std::vector<LogicalBlock> order;
    for (uint32_t i = 8000; i-- > 0;) order.push_back(2 * i + 1);
    std::mt19937 random(7);
    if (shuffled) std::shuffle(order.begin(), order.end(), random);
    for (const LogicalBlock logical : order) ASSERT_TRUE(file.Insert(logical, 1, logical % 3 == 0, 0));
    EXPECT_EQ(file.Depth(), 2U);
    file.CheckAll();
    // Downwards every leaf is full but the first one.
    if (!shuffled) {
      EXPECT_LE(file.TreeBlocks(), 8000 / 84 + 1 + 3);
    }
    for (uint32_t i = 0; i < 4000; ++i) file.Convert(order[i], 1);
    file.CheckAll();
    EXPECT_EQ(Complaints(rig.Finish()), "");
  }
}

TEST(ExtentTree, AFullVolumeLeavesTheTreeAsItWas) {
  const std::vector<uint8_t> image = OneFileImage(8, "-b 1024 -J size=1 -N 128 -m 0");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  ModelledFile file(&rig, InodeOfPath(image, "/file"), 3);
  uint32_t inserted = 0;
  while (file.Insert(2 * inserted, 1, inserted % 2 == 0, 0)) ++inserted;
  EXPECT_GT(inserted, 1000U);
  for (uint32_t i = 0; i < inserted; ++i) file.Convert(2 * i, 1);
  file.CheckAll();
  file.Truncate(inserted);
  rig.Commit();
  EXPECT_TRUE(file.Insert(2 * inserted, 10, true, 0));
  file.Convert(2 * inserted + 3, 4);
  file.CheckAll();
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

TEST(ExtentTree, LimitsOfOneExtent) {
  const std::vector<uint8_t> image =
      OneFileImage(128, "-b 1024 -J size=1 -N 128 -O ^resize_inode -E packed_meta_blocks=1");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/file"));
  MutexLock lock(inode->mutex);
  ExtentTree tree(&rig.context(), inode.get());
  Handle handle = rig.Start(40);
  // Behind group 9's superblock copy; nothing is allocated, the volume is thrown away.
  constexpr BlockNumber kStart = 82000;
  const auto insert = [&](LogicalBlock logical, uint64_t offset, uint32_t length,
                          bool unwritten) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return StatusToErrno(tree.Insert(handle, logical, kStart + offset, length, unwritten, false));
  };
  EXPECT_EQ(insert(0, 0, 0, false), EINVAL);
  EXPECT_EQ(insert(0, 0, 32769, false), EINVAL);
  EXPECT_EQ(insert(0, 0, 32768, true), EINVAL);
  EXPECT_EQ(insert(0xFFFFFFFFU, 0, 1, false), EFBIG);
  EXPECT_EQ(insert(0xFFFFFFF0U, 0, 16, false), EFBIG);
  EXPECT_EQ(insert(0, 0, 30000, false), 0);
  EXPECT_EQ(insert(29999, 30000, 1, false), EEXIST);
  // Adjacent, but together too long for one extent.
  EXPECT_EQ(insert(30000, 30000, 2769, false), 0);
  const auto first = tree.Lookup(0);
  const auto second = tree.Lookup(30000);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->length, 30000U);
  EXPECT_EQ(second->length, 2769U);
  EXPECT_EQ(insert(0xFFFFFFFEU, 33000, 1, false), 0);
  const auto last = tree.Lookup(0xFFFFFFFEU);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->physical, kStart + 33000);
  EXPECT_EQ(StatusToErrno(tree.Lookup(0xFFFFFFFFU).status()), EFBIG);
  EXPECT_EQ(StatusToErrno(tree.Insert(handle, 50000, 0, 1, false, false)), EINVAL);
  EXPECT_EQ(StatusToErrno(tree.ConvertToWritten(handle, 60000, 1, false)), EINVAL);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
