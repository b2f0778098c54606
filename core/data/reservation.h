// Reservation: blocks taken in memory ahead of a growing file, by logical position, so that files written side by side
// and requests that arrive out of order still end up contiguous. Pure bookkeeping; the BlockAllocator owns the blocks'
// state.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/geometry.h"

namespace elidefs::core {

class Reservation {
 public:
  static constexpr uint32_t kMaxBlocks = 2048;  // ahead of one file (8 MiB at 4 KiB)
  static constexpr size_t kMaxPieces = 64;

  // What to ask the allocator for when `logical` is not covered: a run for [start, start + count) near `goal`. `goal`
  // 0: the caller knows better. `count` is at least `wanted` from `logical` on, unless another piece begins before.
  struct Plan {
    LogicalBlock start = 0;
    uint32_t count = 0;
    BlockNumber goal = 0;
  };
  Plan MakePlan(LogicalBlock logical, uint32_t wanted) const;

  // Takes up to `wanted` reserved blocks that belong at `logical`; an empty range when there are none.
  BlockRange Take(LogicalBlock logical, uint32_t wanted);
  // Enters a run that was reserved for logical blocks from `start` on.
  void Add(LogicalBlock start, BlockRange range);
  // Remembers where the writer will continue.
  void Advance(LogicalBlock next_logical, BlockNumber next_physical);
  // Forgets everything; the caller gives the ranges back to the allocator.
  std::vector<BlockRange> Clear();

  bool empty() const { return pieces_.empty(); }
  bool full() const { return pieces_.size() >= kMaxPieces; }

 private:
  std::map<LogicalBlock, BlockRange> pieces_;  // disjoint
  LogicalBlock next_logical_ = 0;
  BlockNumber next_physical_ = 0;  // 0: no hint
};

}  // namespace elidefs::core
