// Reading an extent tree: Lookup, ForEach, and the worst cases that depend on the depth.
#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_node.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kRootEntries = (kInodeBlockBytes - sizeof(ExtentHeader)) / sizeof(ExtentLeaf);

Mapping MappingFrom(const Extent& extent, LogicalBlock logical) {
  const uint32_t skipped = logical - extent.logical;
  Mapping mapping;
  mapping.logical = logical;
  mapping.length = extent.length - skipped;
  mapping.physical = extent.physical + skipped;
  mapping.unwritten = extent.unwritten;
  return mapping;
}

absl::Status CheckUsedExtent(const ExtentOwner& owner, const ExtentLevel& leaf, const Extent& extent) {
  if (MayBelongToFile(*owner.context, extent.physical, extent.length)) return absl::OkStatus();
  return CorruptionError(absl::StrCat("inode ", owner.inode, ": extent node ", leaf.block(), ": logical block ",
                                      extent.logical, " is mapped to block ", extent.physical,
                                      ", which belongs to the filesystem itself"));
}

}  // namespace

void ExtentTree::InitializeRoot(Inode& inode) {
  inode.block_area.fill(0);
  ExtentNode root(inode.block_area.data());
  root.Initialize(kRootEntries, 0);
  inode.extent_shape = {};
}

absl::StatusOr<Mapping> ExtentTree::Lookup(LogicalBlock logical) {
  if (logical >= kLogicalBlockEnd) {
    return ErrnoError(EFBIG, absl::StrCat("inode ", inode_->number, ": logical block ", logical, " is out of range"));
  }
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, logical));
  const ExtentLevel& leaf = path.leaf();
  if (leaf.slot > 0) {
    const Extent extent = leaf.node.At(leaf.slot - 1);
    if (logical < extent.end()) {
      ELIDEFS_RETURN_IF_ERROR(CheckUsedExtent(owner, leaf, extent));
      return MappingFrom(extent, logical);
    }
  }
  Mapping hole;
  hole.logical = logical;
  const uint64_t next = leaf.slot < leaf.node.entries() ? leaf.node.Key(leaf.slot) : path.upper;
  hole.length = static_cast<uint32_t>(next - logical);
  return hole;
}

absl::Status ExtentTree::ForEach(LogicalBlock first, const std::function<bool(const Mapping&)>& visit) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  uint64_t position = first;
  // Ends: each round moves to the next leaf's first key, which lies beyond every key of this one.
  while (position < kLogicalBlockEnd) {
    const auto from = static_cast<LogicalBlock>(position);
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, from));
    const ExtentLevel& leaf = path.leaf();
    for (uint32_t slot = leaf.slot > 0 ? leaf.slot - 1 : 0; slot < leaf.node.entries(); ++slot) {
      const Extent extent = leaf.node.At(slot);
      if (extent.end() <= from) continue;
      ELIDEFS_RETURN_IF_ERROR(CheckUsedExtent(owner, leaf, extent));
      if (!visit(MappingFrom(extent, std::max(extent.logical, from)))) return absl::OkStatus();
    }
    position = path.upper;
  }
  return absl::OkStatus();
}

uint32_t WindowCredits(const VolumeContext& context, uint32_t depth) {
  if (depth == 0) return 0;
  // With one level of blocks there are no more than the root has entries.
  if (depth == 1) return kRootEntries + 1;
  // What a window of nodes and their parents takes, but no large part of a small journal: a handle does other things
  // too, and others want theirs.
  const uint32_t capacity = (context.geometry.block_bytes - sizeof(ExtentHeader)) / sizeof(ExtentLeaf);
  return std::min(WindowNodes(capacity) + 2 * depth, context.journal->max_handle_credits() / 4);
}

uint32_t ExtentTree::InsertCredits() const {
  // Every node of a path of `depth` blocks below the root is modified and split, and the tree grows by a level; a new
  // node costs itself, a bitmap and a descriptor. One level more than now: the tree may have grown since the caller
  // asked.
  const uint32_t depth = std::min<uint32_t>(ExtentNode(inode_->block_area.data()).depth(), kExtentMaxDepth) + 1;
  return depth + 3 * (depth + 1) + WindowCredits(*context_, depth - 1);
}

uint32_t ExtentTree::InsertPromiseBlocks() const {
  const uint32_t depth = std::min<uint32_t>(ExtentNode(inode_->block_area.data()).depth(), kExtentMaxDepth);
  return depth + 1;
}

}  // namespace elidefs::core
