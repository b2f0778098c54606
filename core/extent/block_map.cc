// Block-mapped (ext3-style) files, read only. Source: Documentation/filesystems/ext4, "Direct/Indirect Block
// Addressing".
#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_node.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kDirectBlocks = 12;
constexpr uint32_t kIndirectLevels = 3;

absl::Status CheckPointer(const VolumeContext& context, InodeNumber inode, BlockNumber holder, BlockNumber block) {
  if (MayBelongToFile(context, block, 1)) return absl::OkStatus();
  return CorruptionError(absl::StrCat("inode ", inode, ": block map ",
                                      holder == 0 ? std::string("in the inode") : absl::StrCat("block ", holder),
                                      " points at block ", block, ", which no file can own"));
}

// The run at `index` of an array of block pointers.
absl::StatusOr<Mapping> RunInArray(const VolumeContext& context, InodeNumber inode, BlockNumber holder,
                                   const Le32* pointers, uint32_t count, uint32_t index, LogicalBlock logical) {
  Mapping mapping;
  mapping.logical = logical;
  mapping.physical = pointers[index];
  mapping.length = 1;
  if (!mapping.is_hole()) ELIDEFS_RETURN_IF_ERROR(CheckPointer(context, inode, holder, mapping.physical));
  while (index + mapping.length < count) {
    const uint32_t next = pointers[index + mapping.length];
    const bool continues = mapping.is_hole() ? next == 0 : next == mapping.physical + mapping.length;
    if (!continues) break;
    // A run that leads into blocks of the filesystem ends before them; asking for those reports the damage.
    if (!mapping.is_hole() && !MayBelongToFile(context, next, 1)) break;
    ++mapping.length;
  }
  return mapping;
}

}  // namespace

absl::StatusOr<Mapping> LookupBlockMap(VolumeContext* context, Inode& inode, LogicalBlock logical) {
  if (logical >= kLogicalBlockEnd) {
    return ErrnoError(EFBIG, absl::StrCat("inode ", inode.number, ": logical block ", logical, " is out of range"));
  }
  const auto* pointers = reinterpret_cast<const Le32*>(inode.block_area.data());
  if (logical < kDirectBlocks) {
    return RunInArray(*context, inode.number, 0, pointers, kDirectBlocks, logical, logical);
  }
  const uint64_t per_block = context->geometry.block_bytes / sizeof(Le32);
  uint64_t offset = logical - kDirectBlocks;  // within what the tree of `levels` indirect levels covers
  uint64_t covered = per_block;
  uint32_t levels = 1;
  while (levels <= kIndirectLevels && offset >= covered) {
    offset -= covered;
    covered *= per_block;
    ++levels;
  }
  Mapping hole;
  hole.logical = logical;
  if (levels > kIndirectLevels) {
    hole.length = static_cast<uint32_t>(kLogicalBlockEnd - logical);
    return hole;
  }
  BlockNumber holder = 0;
  BlockNumber block = pointers[kDirectBlocks + levels - 1];
  for (;; --levels) {
    if (block == 0) {
      hole.length = static_cast<uint32_t>(std::min(covered - offset, kLogicalBlockEnd - logical));
      return hole;
    }
    ELIDEFS_RETURN_IF_ERROR(CheckPointer(*context, inode.number, holder, block));
    ELIDEFS_ASSIGN_OR_RETURN(const BufferRef buffer, context->cache->Read(block, nullptr));
    const auto* array = reinterpret_cast<const Le32*>(buffer->data());
    covered /= per_block;  // by one pointer of this array
    const auto index = static_cast<uint32_t>(offset / covered);
    offset %= covered;
    if (levels == 1) {
      return RunInArray(*context, inode.number, block, array, static_cast<uint32_t>(per_block), index, logical);
    }
    holder = block;
    block = array[index];
  }
}

absl::StatusOr<Mapping> LookupMapping(VolumeContext* context, Inode& inode, LogicalBlock logical) {
  if (!inode.HasExtents()) return LookupBlockMap(context, inode, logical);
  ExtentTree tree(context, &inode);
  return tree.Lookup(logical);
}

}  // namespace elidefs::core
