// GroupTable: group descriptors and bitmaps of all groups, loaded on demand through the BlockCache.
//
// Locks: one per group ("block group" in DESIGN's order, inside the inode, handle and extent-map levels). The descriptor
// bytes of a group and its two bitmap buffers are read and written under it; writes also need an open handle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "core/cache/block_cache.h"
#include "core/geometry.h"
#include "core/journal/journal.h"
#include "core/ondisk/super_block.h"

namespace elidefs::core {

// Decoded fields of a descriptor.
struct GroupInfo {
  BlockNumber block_bitmap = 0;
  BlockNumber inode_bitmap = 0;
  BlockNumber inode_table = 0;
  uint32_t free_blocks = 0;
  uint32_t free_inodes = 0;
  uint32_t used_directories = 0;
  uint32_t unused_inodes = 0;  // itable_unused
  uint16_t flags = 0;
  uint32_t block_bitmap_checksum = 0;
  uint32_t inode_bitmap_checksum = 0;
};

struct Group {
  Mutex mutex;
  // Union of the journaled block bitmap, reserved blocks and blocks freed by a transaction that is not durable yet: a clear
  // bit may be allocated. Empty until loaded. One bit per block of the group.
  std::vector<uint8_t> busy ABSL_GUARDED_BY(mutex);
  uint32_t free_unreserved ABSL_GUARDED_BY(mutex) = 0;  // clear bits in `busy`; from the descriptor until it is loaded
  bool loaded ABSL_GUARDED_BY(mutex) = false;
  bool corrupt ABSL_GUARDED_BY(mutex) = false;  // never allocated from again
};

class GroupTable {
 public:
  GroupTable(BlockCache* cache, const Geometry* geometry);

  // Reads every descriptor once and checks checksums and block numbers; sums the free counts. EUCLEAN names the group.
  absl::Status LoadAll();

  // Descriptor access; the caller holds the group's mutex where it needs consistency.
  absl::StatusOr<GroupInfo> Read(GroupNumber group);
  // Encodes, checksums and marks the descriptor's buffer dirty in the handle (1 credit).
  absl::Status Write(Handle& handle, GroupNumber group, const GroupInfo& info);

  // The bitmap buffers, verified against the checksum in the descriptor; a BLOCK_UNINIT / INODE_UNINIT bitmap is built in
  // memory (the flag is cleared by whoever writes it next, see `MaterializeBlockBitmap`).
  absl::StatusOr<BufferRef> BlockBitmap(GroupNumber group, const GroupInfo& info);
  absl::StatusOr<BufferRef> InodeBitmap(GroupNumber group, const GroupInfo& info);

  Group& group(GroupNumber number) { return *groups_[number]; }
  // As of the descriptors at LoadAll; the allocators keep the running totals.
  uint64_t initial_free_blocks() const { return initial_free_blocks_; }
  uint64_t initial_free_inodes() const { return initial_free_inodes_; }
  uint64_t initial_directories() const { return initial_directories_; }

  // Where the inode lives: inode-table block and offset inside it.
  absl::StatusOr<BlockNumber> InodeTableBlock(InodeNumber inode, uint32_t* offset_bytes);
  // True if the inode's table block was never written (INODE_UNINIT without ITABLE_ZEROED, or beyond itable_unused): it must
  // not be read from disk.
  absl::StatusOr<bool> IsInodeTableSlotUninitialized(InodeNumber inode);
  // True for blocks holding superblocks, descriptors (with reserved GDT), bitmaps or inode tables: never a file's block.
  bool IsSystemBlock(BlockNumber start, uint64_t count);
  bool GroupHasSuperBlock(GroupNumber group) const;  // sparse_super rule

 private:
  absl::StatusOr<BufferRef> DescriptorBuffer(GroupNumber group, uint32_t* offset_bytes);

  BlockCache* const cache_;
  const Geometry* const geometry_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<BlockRange> system_ranges_;  // sorted, merged
  uint64_t initial_free_blocks_ = 0;
  uint64_t initial_free_inodes_ = 0;
  uint64_t initial_directories_ = 0;
};

}  // namespace elidefs::core
