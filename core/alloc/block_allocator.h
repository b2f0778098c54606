// BlockAllocator: finds, reserves, journals and frees blocks.
//
// Data blocks are allocated in two steps because of D2 (extents appear only after their data completed): Reserve takes
// blocks in memory only, the data is written, then Commit puts them into the journaled bitmap in the handle that inserts the
// extents. A crash in between loses nothing and leaks nothing. Metadata blocks take both steps at once.
// Freed blocks leave the journaled bitmap at once and become allocatable when the transaction is durable (Release).
// Threads: thread-safe; takes group locks one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/alloc/group_table.h"
#include "core/geometry.h"
#include "core/journal/journal.h"
#include "core/planted_bugs.h"

namespace elidefs::core {

class BlockAllocator {
 public:
  BlockAllocator(const Geometry* geometry, GroupTable* groups, const PlantedBugs* planted);

  // Takes 1..wanted contiguous blocks, as many as it finds near `goal` (a block number; 0: anywhere), preferring a run that
  // starts exactly at the goal, then the longest free run in the goal's group, then other groups of the flex group, then
  // the rest. ENOSPC. `privileged`: may dip into the superblock's reserved blocks.
  absl::StatusOr<BlockRange> Reserve(BlockNumber goal, uint32_t wanted, bool privileged);
  // Gives reserved, not committed blocks back.
  void Unreserve(BlockRange range);
  // Promises `count` blocks to metadata that later handles will need (extent tree growth of accepted writes), without
  // choosing them. ENOSPC. Given back with Unpromise; AllocateMetadata may use promised space.
  absl::Status Promise(uint64_t count, bool privileged);
  void Unpromise(uint64_t count);

  // Journals reserved blocks as in use. Credits: 2 per group touched (bitmap, descriptor).
  absl::Status Commit(Handle& handle, BlockRange range);
  // One metadata block, reserved and journaled. Credits: 2. Does not touch the block's content. `from_promise`: the caller
  // holds a promise for it (which it gives back itself).
  absl::StatusOr<BlockNumber> AllocateMetadata(Handle& handle, BlockNumber goal, bool from_promise);
  // Frees blocks in this transaction: journaled bitmap and descriptor now, reuse when durable. `metadata`: each block is
  // revoked and forgotten by the cache as well. EUCLEAN for system blocks and blocks already free. Credits: 2 per group,
  // plus 1 per metadata block.
  absl::Status Free(Handle& handle, BlockRange range, bool metadata);
  // From JournalOptions::on_durable.
  void Release(const std::vector<BlockRange>& ranges);

  // A good goal for the first block of a new file: its inode's group (flex_bg: the flex group's data area).
  BlockNumber GoalForInode(InodeNumber inode) const;

  // Journaled free blocks, as the group descriptors say.
  uint64_t free_blocks() const { return free_blocks_.load(std::memory_order_relaxed); }
  // Free minus reserved and promised: what statfs reports.
  uint64_t available_blocks() const;

 private:
  const Geometry* const geometry_;
  GroupTable* const groups_;
  const PlantedBugs* const planted_;
  std::atomic<uint64_t> free_blocks_{0};
  std::atomic<uint64_t> reserved_{0};
  std::atomic<uint64_t> promised_{0};
  // Freed but not yet durable: counted in free_blocks_, not allocatable.
  std::atomic<uint64_t> awaiting_durability_{0};
};

}  // namespace elidefs::core
