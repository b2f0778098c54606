// GroupTable: group descriptors and bitmaps of all groups, loaded on demand through the BlockCache.
//
// Locks: one per group ("block group" in DESIGN's order, inside the inode, handle and extent-map levels). The
// descriptor bytes of a group and its two bitmap buffers are read and written under it; writes also need an open
// handle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
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
  // Union of the journaled block bitmap, reserved blocks and blocks freed by a transaction that is not durable yet: a
  // clear bit may be allocated. Empty until loaded. Bit i of word i / 64 is block i of the group; bits beyond its end
  // are set.
  std::vector<uint64_t> busy ABSL_GUARDED_BY(mutex);
  uint32_t free_unreserved ABSL_GUARDED_BY(mutex) = 0;  // clear bits in `busy`; from the descriptor until it is loaded
  bool loaded ABSL_GUARDED_BY(mutex) = false;
  bool corrupt ABSL_GUARDED_BY(mutex) = false;  // a bitmap is damaged: never allocated from again
};

class GroupTable {
 public:
  GroupTable(BlockCache* cache, const Geometry* geometry);

  // Reads every descriptor once and checks checksums and block numbers; sums the free counts. EUCLEAN names the group.
  // Keeps the descriptor blocks in memory. Called again after a replay; nothing else may run meanwhile.
  absl::Status LoadAll();

  // Descriptor access; the caller holds the group's mutex where it needs consistency.
  absl::StatusOr<GroupInfo> Read(GroupNumber group);
  // Encodes, checksums and marks the descriptor's buffer dirty in the handle (1 credit).
  absl::Status Write(Handle& handle, GroupNumber group, const GroupInfo& info);

  // The bitmap buffers, verified against the checksum in the descriptor; a BLOCK_UNINIT / INODE_UNINIT bitmap is built
  // in memory (the flag is cleared by whoever writes it next: SealBlockBitmap, SealInodeBitmap). The caller holds the
  // group's mutex.
  absl::StatusOr<BufferRef> BlockBitmap(GroupNumber group, const GroupInfo& info);
  absl::StatusOr<BufferRef> InodeBitmap(GroupNumber group, const GroupInfo& info);

  // After a change of the bitmap's bits: its checksum and the cleared uninit flag into `info`, which the caller then
  // writes.
  void SealBlockBitmap(const Buffer& bitmap, GroupInfo* info) const;
  void SealInodeBitmap(const Buffer& bitmap, GroupInfo* info) const;

  Group& group(GroupNumber number) { return *groups_[number]; }
  // As of the descriptors at LoadAll; the allocators keep the running totals.
  uint64_t initial_free_blocks() const { return initial_free_blocks_; }
  uint64_t initial_free_inodes() const { return initial_free_inodes_; }
  uint64_t initial_directories() const { return initial_directories_; }

  // Where the inode lives: inode-table block and offset inside it.
  absl::StatusOr<BlockNumber> InodeTableBlock(InodeNumber inode, uint32_t* offset_bytes);
  // Puts an empty block into the cache for the slots from `index` of the group on, none of which was ever used.
  absl::Status BlankInodeTableBlock(GroupNumber group, uint32_t index);
  // True if the inode's table slot was never used (INODE_UNINIT, or beyond itable_unused): what the disk holds there is
  // not an inode and must not be read. Takes the group's mutex.
  absl::StatusOr<bool> IsInodeTableSlotUninitialized(InodeNumber inode);
  // Inode slots of the group that were ever used, counted from its first one.
  uint32_t InitializedInodes(const GroupInfo& info) const;
  // Adds the journal's blocks to the system blocks. EUCLEAN when they lie over other ones. After LoadAll, before the
  // table is shared between threads.
  absl::Status AddSystemBlocks(const std::vector<BlockRange>& blocks);
  // True for blocks holding superblocks, descriptors (with reserved GDT), bitmaps, inode tables or the journal: never a
  // file's block.
  bool IsSystemBlock(BlockNumber start, uint64_t count) const;
  // The first block at or after `block` that is none of these; may be the end of the volume.
  BlockNumber SkipSystemBlocks(BlockNumber block) const;
  bool GroupHasSuperBlock(GroupNumber group) const;  // sparse_super rule

 private:
  struct SystemRange {
    BlockNumber start;
    BlockNumber end;  // exclusive
  };
  // Flags, itable_unused and bitmap checksums mean something only on volumes with descriptor checksums.
  bool HasGroupChecksums() const;
  const uint8_t* Descriptor(GroupNumber group) const;
  GroupInfo Decode(const uint8_t* descriptor) const;
  absl::Status CheckDescriptor(GroupNumber group) const;
  absl::Status BuildSystemRanges();
  absl::Status SetSystemRanges(std::vector<SystemRange> ranges);
  const SystemRange* FirstRangeEndingAfter(BlockNumber block) const;
  // Calls `visit(first_bit, end_bit)` for the system blocks inside the group.
  template <typename Visit>
  void ForEachSystemRun(GroupNumber group, Visit visit) const;
  absl::Status CheckBlockBitmap(GroupNumber group, const GroupInfo& info, const uint8_t* bitmap) const;
  absl::Status CheckInodeBitmap(GroupNumber group, const GroupInfo& info, const uint8_t* bitmap) const;

  BlockCache* const cache_;
  const Geometry* const geometry_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<BufferRef> descriptor_blocks_;  // constant after LoadAll; the bytes of a descriptor belong to its group
  std::vector<BlockNumber> inode_tables_;     // constant after LoadAll
  std::vector<SystemRange> system_ranges_;    // sorted, disjoint
  uint64_t initial_free_blocks_ = 0;
  uint64_t initial_free_inodes_ = 0;
  uint64_t initial_directories_ = 0;
};

}  // namespace elidefs::core
