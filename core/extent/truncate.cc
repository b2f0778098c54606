// TruncateFrom: unmaps from the end in steps of bounded cost, so that it can stop between any two of them.
#include <algorithm>

#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

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

}  // namespace

absl::StatusOr<bool> ExtentTree::TruncateFrom(Handle& handle, LogicalBlock first) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  bool freed = false;
  // Ends: every round frees at least one block or one node.
  while (true) {
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, kLogicalBlockEnd - 1));
    ExtentLevel& leaf = path.leaf();
    if (leaf.node.entries() == 0) {
      if (path.levels.size() == 1) break;
      if (!EnsureCredits(handle, StepCredits(owner, path, 0) + kCallerCredits)) return false;
      ELIDEFS_RETURN_IF_ERROR(RemoveEmptyNodes(owner, handle, path));
      freed = true;
      continue;
    }
    const uint32_t slot = leaf.node.entries() - 1;
    Extent extent = leaf.node.At(slot);
    if (extent.end() <= first) break;
    const uint32_t blocks = BlocksToFree(owner, extent, first);
    if (!EnsureCredits(handle, StepCredits(owner, path, blocks) + kCallerCredits)) return false;
    extent.length -= blocks;
    freed = true;
    // Checks that the blocks are a file's and in use; nothing of the tree has changed when it fails.
    ELIDEFS_RETURN_IF_ERROR(
        context_->blocks->Free(handle, BlockRange{extent.physical + extent.length, blocks}, owner.metadata_content));
    inode_->blocks_512 -= std::min(inode_->blocks_512, owner.SectorsOf(blocks));
    if (extent.length > 0) {
      leaf.node.Put(slot, EncodeExtent(extent));
    } else {
      leaf.node.RemoveAt(slot, 1);
      CountEntries(owner, leaf, -1);
    }
    if (leaf.node.entries() > 0 || path.levels.size() == 1) {
      SealExtentLevel(owner, handle, leaf);
    } else {
      ELIDEFS_RETURN_IF_ERROR(RemoveEmptyNodes(owner, handle, path));
    }
  }
  const uint32_t later = kExtentMaxDepth * kNodeFreeCredits + kCallerCredits;
  if (!EnsureCredits(handle, later)) return false;
  // The rest of the handle serves to make the tree as narrow as e2fsck wants it.
  CreditAllowance allowance{&handle, handle.credits_left() - later};
  ELIDEFS_RETURN_IF_ERROR(
      NarrowExtentTree(owner, handle, kLogicalBlockEnd - 1, freed || owner.shape->known, allowance));
  // A handle of its own may have the credits that this one has spent.
  return !freed || IsNarrow(owner);
}

}  // namespace elidefs::core
