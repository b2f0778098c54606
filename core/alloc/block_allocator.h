// BlockAllocator: finds, reserves, journals and frees blocks.
//
// Data blocks are allocated in two steps because of D2 (extents appear only after their data completed): Reserve takes
// blocks in memory only, the data is written, then Commit puts them into the journaled bitmap in the handle that
// inserts the extents. A crash in between loses nothing and leaks nothing. Metadata blocks take both steps at once.
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
  // After GroupTable::LoadAll.
  BlockAllocator(const Geometry* geometry, GroupTable* groups, const PlantedBugs* planted);

  // Takes 1..wanted contiguous blocks, as many as it finds near `goal` (a block number; 0: anywhere), preferring a run
  // that starts exactly at the goal, then the longest free run in the goal's group, then other groups of the flex
  // group, then the rest. ENOSPC. `privileged`: may dip into the superblock's reserved blocks. EUCLEAN once per group
  // with a damaged bitmap, which is passed over from then on.
  absl::StatusOr<BlockRange> Reserve(BlockNumber goal, uint32_t wanted, bool privileged);
  // Gives reserved, not committed blocks back.
  void Unreserve(BlockRange range);
  // Promises `count` blocks to metadata that later handles will need (extent tree growth of accepted writes), without
  // choosing them. ENOSPC. Given back with Unpromise; AllocateMetadata may use promised space.
  absl::Status Promise(uint64_t count, bool privileged);
  void Unpromise(uint64_t count);

  // Journals reserved blocks as in use. Credits: 2 per group touched (bitmap, descriptor).
  absl::Status Commit(Handle& handle, BlockRange range);
  // One metadata block, reserved and journaled. Credits: 2. Does not touch the block's content. `from_promise`: the
  // caller holds a promise for it (which it gives back itself).
  absl::StatusOr<BlockNumber> AllocateMetadata(Handle& handle, BlockNumber goal, bool from_promise);
  // Frees blocks in this transaction: journaled bitmap and descriptor now, reuse when durable. `metadata`: each block
  // is revoked and forgotten by the cache as well. EUCLEAN for system blocks and blocks already free. Credits: 2 per
  // group, plus 1 per metadata block.
  absl::Status Free(Handle& handle, BlockRange range, bool metadata);
  // From JournalOptions::on_durable.
  void Release(const std::vector<BlockRange>& ranges);

  // A good goal for the first block of a new file: its inode's group (flex_bg: the flex group's data area).
  BlockNumber GoalForInode(InodeNumber inode) const;

  // Journaled free blocks, as the group descriptors say.
  uint64_t free_blocks() const { return free_blocks_.load(std::memory_order_relaxed); }
  // Free minus reserved and promised and minus the superblock's reserve: what statfs reports to everybody.
  uint64_t available_blocks() const;
  uint64_t promised_blocks() const { return promised_.load(std::memory_order_relaxed); }
  // Freed by transactions that are not durable yet: after an ENOSPC a commit makes this many allocatable.
  uint64_t awaiting_durability_blocks() const { return awaiting_durability_.load(std::memory_order_relaxed); }

 private:
  // Takes up to `wanted` blocks out of the unclaimed count, at least `least`; 0 when that is not possible.
  uint64_t Claim(uint64_t least, uint64_t wanted, bool privileged);
  void Unclaim(uint64_t count) { unclaimed_.fetch_add(static_cast<int64_t>(count), std::memory_order_relaxed); }
  // Chooses claimed blocks and makes them busy; claims beyond the range found are given back.
  absl::StatusOr<BlockRange> Choose(BlockNumber goal, uint32_t claimed);
  // A range of count 0 when the group has nothing. `goal_bit`: the group's bits when it is not the goal's group.
  absl::StatusOr<BlockRange> TakeFromGroup(GroupNumber number, uint32_t goal_bit, uint32_t wanted);
  absl::Status Load(GroupNumber number, Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  BlockRange Take(GroupNumber number, Group& group, uint32_t first_bit, uint32_t end_bit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mutex);
  // The parts of a range, each inside one group.
  absl::Status CommitPart(Handle& handle, BlockRange part);
  absl::Status FreePart(Handle& handle, BlockRange part);
  void ClearBusy(BlockRange range);
  absl::Status CheckRange(BlockRange range) const;

  const Geometry* const geometry_;
  GroupTable* const groups_;
  const PlantedBugs* const planted_;
  std::atomic<uint64_t> free_blocks_;
  std::atomic<uint64_t> reserved_{0};
  std::atomic<uint64_t> promised_{0};
  // Freed but not yet durable: counted in free_blocks_, not allocatable.
  std::atomic<uint64_t> awaiting_durability_{0};
  // free - reserved - promised - awaiting durability. Every taker goes through this one number, so that two of them
  // never count on the same block; below 0 for moments while a promise is turned into a block.
  std::atomic<int64_t> unclaimed_;
};

}  // namespace elidefs::core
