// HtreeCursor: follows the index of an indexed directory from a name's hash to the leaves that may hold it. Source:
// Documentation/filesystems/ext4, "Hash Tree Directories".
//
// Nothing here fails: an index that cannot be followed (unknown hash, wrong counts, order or block numbers, unreadable
// or damaged blocks) is kUnusable, and the caller reads all blocks, which reports the damage.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "core/directory/directory_block.h"

namespace elidefs::core {

enum class HtreeStep : uint8_t { kLeaf, kEnd, kUnusable };

class HtreeCursor {
 public:
  HtreeCursor(const DirectoryReader* reader, Inode* inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex)
      ABSL_ASSERT_EXCLUSIVE_LOCK(inode_->mutex)
      : reader_(reader), inode_(inode) {}

  // The first leaf for this name.
  HtreeStep Seek(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // The next leaf if the run of names with this hash continues there: its key is the hash with the lowest bit set.
  HtreeStep NextWithSameHash() ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  LogicalBlock leaf() const { return leaf_; }

 private:
  struct Level {
    DirectoryBlock block;
    const DxEntry* entries = nullptr;  // entry 0 has no key: its hash field holds limit and count
    uint32_t count = 0;
    uint32_t slot = 0;
  };
  // Reads and checks an index block and appends it as a level, positioned at slot 0.
  bool Push(LogicalBlock logical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // From the last level down to a leaf, at slot 0 of each new level or where the hash leads.
  HtreeStep Descend(bool by_hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);

  const DirectoryReader* const reader_;
  Inode* const inode_;
  uint32_t hash_ = 0;
  uint32_t index_levels_ = 0;  // levels with index blocks, the root included
  absl::InlinedVector<Level, 3> levels_;
  LogicalBlock leaf_ = 0;
  uint32_t leaves_visited_ = 0;
};

}  // namespace elidefs::core
