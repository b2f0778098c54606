// LogMap: logical blocks of the journal inode to blocks of the volume. Immutable after Create, so thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/geometry.h"

namespace elidefs::core {

class LogMap {
 public:
  LogMap() = default;
  // EUCLEAN when a range is empty, leaves the volume or overlaps another.
  static absl::StatusOr<LogMap> Create(const std::vector<BlockRange>& ranges, BlockNumber block_count);

  // `log_block` < size().
  BlockNumber Physical(uint32_t log_block) const;
  // How many log blocks from `log_block` on are neighbours on the volume; at least 1.
  uint32_t ContiguousFrom(uint32_t log_block) const;
  bool Contains(BlockNumber block) const;
  uint32_t size() const { return size_; }

 private:
  struct Extent {
    uint32_t logical = 0;
    BlockRange range;
  };
  const Extent& ExtentOf(uint32_t log_block) const;

  std::vector<Extent> by_logical_;
  std::vector<BlockRange> by_physical_;
  uint32_t size_ = 0;
};

}  // namespace elidefs::core
