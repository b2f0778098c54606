// TruncateFrom: unmaps from the end in steps of bounded cost, so that it can stop between any two of them.
#include <algorithm>

#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kNodeFreeCredits = 3;  // bitmap, descriptor, revoke
// Journaled content is revoked block by block, which costs a credit each.
constexpr uint32_t kMaxMetadataBlocksPerStep = 16;
// One step: a run within one group and the leaf; then for each level a freed node and its parent.
constexpr uint32_t kStepCredits = 2 + kMaxMetadataBlocksPerStep + 1 + kExtentMaxDepth * (kNodeFreeCredits + 1);
static_assert(kStepCredits <= ExtentTree::kTruncateCredits);

uint32_t StepCredits(const ExtentOwner& owner, const ExtentPath& path, uint32_t blocks) {
  return 2 + (owner.metadata_content ? blocks : 0) + 1 +
         static_cast<uint32_t>(path.levels.size() - 1) * (kNodeFreeCredits + 1);
}

// How much of the end of `extent` one step frees: not beyond `first` and not beyond the last block's group.
uint32_t BlocksToFree(const ExtentOwner& owner, const Extent& extent, LogicalBlock first) {
  const BlockNumber last = extent.physical + extent.length - 1;
  const BlockNumber group_start = owner.geometry().FirstBlockOfGroup(owner.geometry().GroupOfBlock(last));
  uint64_t blocks = extent.end() - std::max(extent.logical, first);
  blocks = std::min<uint64_t>(blocks, last - group_start + 1);
  if (owner.metadata_content) blocks = std::min<uint64_t>(blocks, kMaxMetadataBlocksPerStep);
  return static_cast<uint32_t>(blocks);
}

// Takes an empty leaf out of the tree, and the index nodes that become empty with it.
absl::Status RemoveEmptyNodes(const ExtentOwner& owner, Handle& handle, ExtentPath& path) {
  while (path.levels.size() > 1 && path.leaf().node.entries() == 0) {
    ELIDEFS_RETURN_IF_ERROR(FreeExtentNode(owner, handle, path.leaf().block()));
    path.levels.pop_back();
    ExtentLevel& parent = path.leaf();
    parent.node.RemoveAt(parent.slot, 1);
    if (parent.node.entries() > 0) {
      // An empty leaf on the disk need not be the last child.
      if (parent.slot == 0) PropagateFirstKey(owner, handle, path, path.levels.size() - 1);
      SealExtentLevel(owner, handle, parent);
    }
  }
  ExtentLevel& root = path.levels.front();
  if (root.node.entries() == 0) root.node.SetDepth(0);
  return absl::OkStatus();
}

// While the last leaf fits into the one before it, moves its extents there. Like the height of the tree, its width is
// what e2fsck looks at. Only as far as the handle's credits reach: the tree is right without it.
absl::Status MergeLastLeaves(const ExtentOwner& owner, Handle& handle) {
  constexpr uint32_t kMergeCredits = 2 + kNodeFreeCredits;
  constexpr uint32_t kLater = kExtentMaxDepth * kNodeFreeCredits + ExtentTree::kCallerCredits;
  while (EnsureCredits(handle, kMergeCredits + kLater)) {
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, kLogicalBlockEnd - 1));
    if (path.levels.size() < 2) break;
    ExtentLevel& leaf = path.leaf();
    ExtentLevel& parent = path.levels[path.levels.size() - 2];
    if (parent.slot == 0) break;  // the leaf before has another parent
    ELIDEFS_ASSIGN_OR_RETURN(ExtentLevel left,
                             ReadExtentChild(owner, parent, parent.slot - 1, parent.node.Key(parent.slot)));
    if (left.node.entries() + leaf.node.entries() > left.node.max()) break;
    ELIDEFS_RETURN_IF_ERROR(FreeExtentNode(owner, handle, leaf.block()));
    leaf.node.MoveTail(0, left.node);
    SealExtentLevel(owner, handle, left);
    parent.node.RemoveAt(parent.slot, 1);
    SealExtentLevel(owner, handle, parent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> ExtentTree::TruncateFrom(Handle& handle, LogicalBlock first) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  // Ends: every round frees at least one block or one node.
  while (true) {
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, kLogicalBlockEnd - 1));
    ExtentLevel& leaf = path.leaf();
    if (leaf.node.entries() == 0) {
      if (path.levels.size() == 1) break;
      if (!EnsureCredits(handle, StepCredits(owner, path, 0) + kCallerCredits)) return false;
      ELIDEFS_RETURN_IF_ERROR(RemoveEmptyNodes(owner, handle, path));
      continue;
    }
    const uint32_t slot = leaf.node.entries() - 1;
    Extent extent = leaf.node.At(slot);
    if (extent.end() <= first) break;
    const uint32_t blocks = BlocksToFree(owner, extent, first);
    if (!EnsureCredits(handle, StepCredits(owner, path, blocks) + kCallerCredits)) return false;
    extent.length -= blocks;
    // Checks that the blocks are a file's and in use; nothing of the tree has changed when it fails.
    ELIDEFS_RETURN_IF_ERROR(
        context_->blocks->Free(handle, BlockRange{extent.physical + extent.length, blocks}, owner.metadata_content));
    inode_->blocks_512 -= std::min(inode_->blocks_512, owner.SectorsOf(blocks));
    if (extent.length > 0) {
      leaf.node.Put(slot, EncodeExtent(extent));
    } else {
      leaf.node.RemoveAt(slot, 1);
    }
    if (leaf.node.entries() > 0 || path.levels.size() == 1) {
      SealExtentLevel(owner, handle, leaf);
    } else {
      ELIDEFS_RETURN_IF_ERROR(RemoveEmptyNodes(owner, handle, path));
    }
  }
  ELIDEFS_RETURN_IF_ERROR(MergeLastLeaves(owner, handle));
  if (!EnsureCredits(handle, kExtentMaxDepth * kNodeFreeCredits + kCallerCredits)) return false;
  ELIDEFS_RETURN_IF_ERROR(LowerExtentTree(owner, handle));
  return true;
}

}  // namespace elidefs::core
