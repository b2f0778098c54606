#include "core/data/reservation.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace elidefs::core {

Reservation::Plan Reservation::MakePlan(LogicalBlock logical, uint32_t wanted) const {
  Plan plan = {logical, wanted, 0};
  if (next_physical_ != 0 && logical >= next_logical_ && logical - next_logical_ <= kMaxBlocks) {
    // The file grows, perhaps with requests that overtook each other: start where it was expected to go on and look
    // ahead by what it has so far.
    const uint32_t ahead = std::clamp<uint32_t>(logical, 16, kMaxBlocks);
    plan.start = next_logical_;
    plan.goal = next_physical_;
    plan.count = (logical - next_logical_) + wanted + ahead;
  } else if (next_physical_ == 0 && logical > 0 && logical < kMaxBlocks) {
    // The first request seen is not the first of the file: leave room before it.
    plan.start = 0;
    plan.count = std::bit_ceil(logical + wanted);
  }
  plan.count = std::min<uint32_t>(plan.count, UINT32_MAX - plan.start);
  const auto next = pieces_.lower_bound(plan.start);
  if (next != pieces_.end() && next->first < logical) return {logical, wanted, 0};  // the room before is taken already
  if (next != pieces_.end()) plan.count = std::min(plan.count, next->first - plan.start);
  return plan;
}

BlockRange Reservation::Take(LogicalBlock logical, uint32_t wanted) {
  auto position = pieces_.upper_bound(logical);
  if (position == pieces_.begin()) return {};
  --position;
  const auto [start, range] = *position;
  if (logical - start >= range.count) return {};
  const uint32_t skipped = logical - start;
  const uint32_t taken = std::min(wanted, range.count - skipped);
  pieces_.erase(position);
  if (skipped > 0) pieces_.emplace(start, BlockRange{range.start, skipped});
  const uint32_t behind = range.count - skipped - taken;
  if (behind > 0) pieces_.emplace(logical + taken, BlockRange{range.start + skipped + taken, behind});
  return {range.start + skipped, taken};
}

void Reservation::Add(LogicalBlock start, BlockRange range) {
  [[maybe_unused]] const bool inserted = pieces_.emplace(start, range).second;
  assert(inserted);
}

void Reservation::Advance(LogicalBlock next_logical, BlockNumber next_physical) {
  if (next_physical_ != 0 && next_logical < next_logical_ && next_logical_ - next_logical <= kMaxBlocks) return;
  next_logical_ = next_logical;
  next_physical_ = next_physical;
}

std::vector<BlockRange> Reservation::Clear() {
  std::vector<BlockRange> ranges;
  for (const auto& [start, range] : pieces_) ranges.push_back(range);
  pieces_.clear();
  next_logical_ = 0;
  next_physical_ = 0;
  return ranges;
}

}  // namespace elidefs::core
