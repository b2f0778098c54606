// Properties of extent trees against a map of blocks: random insertions, conversions and truncations on 1 KiB blocks,
// where a node holds 84 entries, judged by our own lookups and by e2fsck.
#include "core/extent/extent_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_node.h"
#include "tests/unit/core/extent/mapping_rig.h"
#include "tests/unit/core/extent/modelled_file.h"

namespace elidefs::core::mapping_test {
namespace {

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
