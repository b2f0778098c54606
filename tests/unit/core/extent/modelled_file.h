// ModelledFile: one file of a rig beside a map of its blocks. Every change is made to both, within the credits that the
// tree promises, and the cached counts of the tree's levels are compared with the tree.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/extent/extent_node.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {

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
  // Inserts one block in a transaction of its own; how many credits the tree took.
  uint32_t CreditsOfInsert(LogicalBlock logical);
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
  uint32_t credits_of_insert_ = 0;
};

// One empty file, /file.
std::vector<uint8_t> OneFileImage(uint32_t size_mib, const std::string& options);

}  // namespace elidefs::core::mapping_test
