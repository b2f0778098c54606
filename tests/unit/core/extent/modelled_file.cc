#include "tests/unit/core/extent/modelled_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core::mapping_test {

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
  // More than promised only where the handle was extended for it.
  credits_of_insert_ = before - handle.credits_left();
  EXPECT_GE(handle.credits_left(), before - tree_credits);
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

uint32_t ModelledFile::CreditsOfInsert(LogicalBlock logical) {
  rig_.Commit();
  EXPECT_TRUE(Insert(logical, 1, /*unwritten=*/false, 0));
  return credits_of_insert_;
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
  EXPECT_GE(handle.credits_left(), before - tree_credits);
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
  if (!inode_->extent_shape.known) return;
  const ExtentShape kept = inode_->extent_shape;
  inode_->extent_shape = {};
  const absl::Status counted = CountExtentShape(MakeExtentOwner(&rig_.context(), *inode_));
  EXPECT_TRUE(counted.ok()) << counted;
  EXPECT_EQ(kept.excess, inode_->extent_shape.excess);
}

std::vector<uint8_t> OneFileImage(uint32_t size_mib, const std::string& options) {
  return MakeMappingImage(size_mib, options, "write /dev/null file\n");
}

}  // namespace elidefs::core::mapping_test
