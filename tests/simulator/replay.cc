// Step 3 of the judge: the journal recovery of elidefs by itself, compared with e2fsck's.
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/journal/journal.h"
#include "core/ondisk/inode_layout.h"
#include "core/ondisk/validate.h"
#include "tests/simulator/judge.h"

namespace elidefs::simulator {
namespace {

constexpr uint64_t kSuperBlockOffset = 1024;
constexpr uint64_t kCacheBytes = 1U << 20U;

absl::StatusOr<core::Geometry> GeometryOf(const std::vector<uint8_t>& image) {
  core::SuperBlock super_block;
  std::memcpy(&super_block, image.data() + kSuperBlockOffset, sizeof(super_block));
  return core::ValidateSuperBlock(super_block, image.size(), 512, true);
}

// The journal's place, from the copy of its inode's extents that mke2fs leaves in the superblock.
std::vector<core::BlockRange> LogMapOf(const std::vector<uint8_t>& image) {
  core::SuperBlock super_block;
  std::memcpy(&super_block, image.data() + kSuperBlockOffset, sizeof(super_block));
  const auto* raw = reinterpret_cast<const uint8_t*>(super_block.s_jnl_blocks);
  core::ExtentHeader header;
  std::memcpy(&header, raw, sizeof(header));
  std::vector<core::BlockRange> map;
  for (uint16_t i = 0; i < header.eh_entries && i < 4 && header.eh_depth == 0; ++i) {
    core::ExtentLeaf leaf;
    std::memcpy(&leaf, raw + sizeof(header) + i * sizeof(leaf), sizeof(leaf));
    map.push_back({(uint64_t{leaf.ee_start_hi} << 32U) | leaf.ee_start_lo, leaf.ee_len});
  }
  return map;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> ReplayWithElidefs(const std::vector<uint8_t>& image) {
  ELIDEFS_ASSIGN_OR_RETURN(const core::Geometry geometry, GeometryOf(image));
  const std::unique_ptr<blockio::MemoryDevice> memory = blockio::MemoryDevice::FromBytes(image, {});
  blockio::RequestQueueOptions queue_options;
  queue_options.hardware_queues = 1;
  ELIDEFS_ASSIGN_OR_RETURN(const std::unique_ptr<blockio::RequestQueue> queue,
                           blockio::RequestQueue::Create(memory.get(), queue_options));
  core::BlockCache cache(queue.get(), geometry.block_bytes, geometry.block_count, kCacheBytes);
  core::JournalOptions options;
  options.log_map = LogMapOf(image);
  {
    ELIDEFS_ASSIGN_OR_RETURN(const std::unique_ptr<core::Journal> journal,
                             core::Journal::Open(queue.get(), &cache, geometry, std::move(options)));
    const absl::StatusOr<core::RecoveryResult> result = journal->Recover(nullptr);
    if (!result.ok()) return result.status();
  }
  return memory->bytes();
}

bool HasOrphans(const std::vector<uint8_t>& image) {
  core::SuperBlock super_block;
  std::memcpy(&super_block, image.data() + kSuperBlockOffset, sizeof(super_block));
  return super_block.s_last_orphan != 0;
}

std::string CompareReplays(const std::vector<uint8_t>& ours, const std::vector<uint8_t>& theirs) {
  const absl::StatusOr<core::Geometry> geometry = GeometryOf(ours);
  if (!geometry.ok()) return geometry.status().ToString();
  const std::vector<core::BlockRange> log = LogMapOf(ours);
  for (core::BlockNumber block = 0; block < geometry->block_count; ++block) {
    if (block == geometry->SuperBlockNumber()) continue;
    bool in_log = false;
    for (const core::BlockRange& range : log)
      in_log = in_log || (block >= range.start && block - range.start < range.count);
    const uint64_t at = block * geometry->block_bytes;
    if (!in_log && std::memcmp(ours.data() + at, theirs.data() + at, geometry->block_bytes) != 0) {
      return absl::StrCat("block ", block, " after our replay differs from e2fsprogs'");
    }
  }
  return "";
}

}  // namespace elidefs::simulator
