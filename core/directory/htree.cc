#include "core/directory/htree.h"

#include <optional>
#include <utility>

#include "core/directory/directory_hash.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kMaxIndirectLevels = 2;    // 3 index levels would need large_dir; the root is not counted
constexpr uint32_t kBlockMask = 0x0FFFFFFFU;  // the upper bits of a block number are reserved

// The limit that the format prescribes for an index block of this volume.
uint32_t ExpectedLimit(const Geometry& geometry, uint32_t count_offset) {
  const uint32_t tail_bytes = geometry.metadata_csum() ? sizeof(DxTail) : 0;
  return (geometry.block_bytes - count_offset - tail_bytes) / sizeof(DxEntry);
}

bool KeysAscend(const DxEntry* entries, uint32_t count) {
  for (uint32_t slot = 2; slot < count; ++slot) {
    if (entries[slot].hash < entries[slot - 1].hash) return false;
  }
  return true;
}

// The last slot whose key is at most `hash`.
uint32_t SlotFor(const DxEntry* entries, uint32_t count, uint32_t hash) {
  uint32_t low = 1;
  uint32_t high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (entries[middle].hash <= hash) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

}  // namespace

bool HtreeCursor::Push(LogicalBlock logical) {
  if (logical >= reader_->block_count() || (levels_.empty() != (logical == 0))) return false;
  absl::StatusOr<DirectoryBlock> block = reader_->ReadBlock(*inode_, logical);
  if (!block.ok()) return false;
  const DirectoryBlockKind expected = levels_.empty() ? DirectoryBlockKind::kDxRoot : DirectoryBlockKind::kDxNode;
  if (block->kind() != expected) return false;
  const uint32_t count_offset = levels_.empty() ? kDxRootCountOffset : kDxNodeCountOffset;
  const auto* counts = reinterpret_cast<const DxCountLimit*>(block->data() + count_offset);
  if (counts->limit != ExpectedLimit(reader_->geometry(), count_offset)) return false;
  Level level;
  level.count = counts->count;
  if (level.count == 0 || level.count > counts->limit) return false;
  level.entries = reinterpret_cast<const DxEntry*>(block->data() + count_offset);
  if (!KeysAscend(level.entries, level.count)) return false;
  level.block = *std::move(block);
  levels_.push_back(std::move(level));
  return true;
}

HtreeStep HtreeCursor::Descend(bool by_hash) {
  while (true) {
    Level& level = levels_.back();
    const LogicalBlock below = level.entries[level.slot].block & kBlockMask;
    if (levels_.size() == index_levels_) {
      if (below == 0 || below >= reader_->block_count()) return HtreeStep::kUnusable;
      leaf_ = below;
      // A cycle of equal keys cannot visit more leaves than the directory has blocks.
      return ++leaves_visited_ <= reader_->block_count() ? HtreeStep::kLeaf : HtreeStep::kUnusable;
    }
    if (!Push(below)) return HtreeStep::kUnusable;
    Level& pushed = levels_.back();
    if (by_hash) pushed.slot = SlotFor(pushed.entries, pushed.count, hash_);
  }
}

HtreeStep HtreeCursor::Seek(std::string_view name) {
  levels_.clear();
  if (!Push(0)) return HtreeStep::kUnusable;
  Level& root = levels_.back();
  const auto& info = *reinterpret_cast<const DxRootInfo*>(root.block.data() + kDxRootInfoOffset);
  if (info.reserved_zero != 0 || info.info_length != sizeof(DxRootInfo) || (info.unused_flags & 1U) != 0 ||
      info.indirect_levels > kMaxIndirectLevels) {
    return HtreeStep::kUnusable;
  }
  uint8_t version = info.hash_version;
  // The on-disk version names the algorithm; the superblock says how characters were extended.
  if (version <= kHashTea && reader_->geometry().hash_unsigned) version += kHashLegacyUnsigned;
  const std::optional<uint32_t> hash = DirectoryHash(name, version, reader_->geometry().hash_seed);
  if (!hash.has_value()) return HtreeStep::kUnusable;
  hash_ = *hash;
  index_levels_ = info.indirect_levels + 1U;
  root.slot = SlotFor(root.entries, root.count, hash_);
  return Descend(/*by_hash=*/true);
}

HtreeStep HtreeCursor::NextWithSameHash() {
  // The lowest level that has a next slot.
  while (!levels_.empty() && levels_.back().slot + 1 >= levels_.back().count) levels_.pop_back();
  if (levels_.empty()) return HtreeStep::kEnd;
  Level& level = levels_.back();
  ++level.slot;
  if (level.entries[level.slot].hash != (hash_ | 1U)) return HtreeStep::kEnd;
  return Descend(/*by_hash=*/false);
}

}  // namespace elidefs::core
