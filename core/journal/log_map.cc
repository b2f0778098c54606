#include "core/journal/log_map.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace elidefs::core {

absl::StatusOr<LogMap> LogMap::Create(const std::vector<BlockRange>& ranges, BlockNumber block_count) {
  LogMap map;
  for (const BlockRange& range : ranges) {
    if (range.count == 0 || range.start >= block_count || range.count > block_count - range.start ||
        range.count > std::numeric_limits<uint32_t>::max() - map.size_) {
      return CorruptionError("journal inode maps blocks outside the volume");
    }
    map.by_logical_.push_back({map.size_, range});
    map.size_ += range.count;
  }
  if (map.size_ == 0) return CorruptionError("journal inode has no blocks");
  map.by_physical_ = ranges;
  std::sort(map.by_physical_.begin(), map.by_physical_.end(),
            [](const BlockRange& a, const BlockRange& b) { return a.start < b.start; });
  for (size_t i = 1; i < map.by_physical_.size(); ++i) {
    if (map.by_physical_[i - 1].start + map.by_physical_[i - 1].count > map.by_physical_[i].start) {
      return CorruptionError("journal inode maps a block twice");
    }
  }
  return map;
}

const LogMap::Extent& LogMap::ExtentOf(uint32_t log_block) const {
  auto after = std::upper_bound(by_logical_.begin(), by_logical_.end(), log_block,
                                [](uint32_t block, const Extent& extent) { return block < extent.logical; });
  return *(after - 1);
}

BlockNumber LogMap::Physical(uint32_t log_block) const {
  const Extent& extent = ExtentOf(log_block);
  return extent.range.start + (log_block - extent.logical);
}

uint32_t LogMap::ContiguousFrom(uint32_t log_block) const {
  const Extent& extent = ExtentOf(log_block);
  return extent.range.count - (log_block - extent.logical);
}

bool LogMap::Contains(BlockNumber block) const {
  auto after = std::upper_bound(by_physical_.begin(), by_physical_.end(), block,
                                [](BlockNumber number, const BlockRange& range) { return number < range.start; });
  if (after == by_physical_.begin()) return false;
  const BlockRange& range = *(after - 1);
  return block - range.start < range.count;
}

}  // namespace elidefs::core
