// Changes of an extent tree that Insert, ConvertToWritten and TruncateFrom share. All of them keep these invariants,
// which CheckExtentEntries tests on the way in: keys ascend, a parent's key is its child's first key, no node but the
// root is empty. Used under the inode's mutex with an open handle; the caller writes the inode.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/extent/extent_node.h"
#include "core/journal/journal.h"

namespace elidefs::core {

// Checksums the level's block and makes it dirty in the handle; nothing for the root, which lies in the inode.
void SealExtentLevel(const ExtentOwner& owner, Handle& handle, const ExtentLevel& level);

// After the first key of `levels[level]` changed: corrects the keys above it and seals the nodes it changes.
void PropagateFirstKey(const ExtentOwner& owner, Handle& handle, ExtentPath& path, size_t level);

// Replaces `old_count` extents from slot `first_slot` of the path's leaf by `extents` (1 to 5, ascending, covering at
// least what is kept), merged where kind, position and length allow. At most two more extents than before. All blocks
// for new nodes are allocated first: after ENOSPC and EFBIG the tree is unchanged. A failure after the first change
// (a neighbouring node or a bitmap is damaged or unreadable) aborts the journal, so that no half change commits.
absl::Status ReplaceExtents(const ExtentOwner& owner, Handle& handle, ExtentPath& path, uint32_t first_slot,
                            uint32_t old_count, absl::Span<const Extent> extents, bool promised);

inline constexpr uint32_t kNodeFreeCredits = 3;  // bitmap, descriptor, revoke

// Frees a node's block and takes it out of the inode's block count. Credits: kNodeFreeCredits.
absl::Status FreeExtentNode(const ExtentOwner& owner, Handle& handle, const ExtentLevel& level);

// Takes the path's last node, if it is empty, out of the tree, and the index nodes that become empty with it. Credits
// for each level: kNodeFreeCredits, and its parent.
absl::Status RemoveEmptyNodes(const ExtentOwner& owner, Handle& handle, ExtentPath& path);

// While the root has a single child whose entries fit the root, moves them up and frees the child (credits:
// kNodeFreeCredits each). A tree as low as possible is what e2fsck wants to see.
absl::Status LowerExtentTree(const ExtentOwner& owner, Handle& handle);

// Fills owner.shape unless it is known: reads every node of the tree.
absl::Status CountExtentShape(const ExtentOwner& owner);

// To be called after a node got `added` entries, or lost them (negative).
void CountEntries(const ExtentOwner& owner, const ExtentLevel& level, int64_t added);

// The entries that fit; what the node's header states can be less.
uint32_t CapacityOf(const ExtentOwner& owner, const ExtentLevel& level);

// Credits for moving entries between neighbouring nodes: what is left of a share that the handle holds, beyond it what
// the transaction has room for.
struct CreditAllowance {
  Handle* handle = nullptr;
  uint32_t share = 0;

  bool Take(uint32_t credits) {
    if (credits > share) return handle->Extend(credits);
    share -= credits;
    return true;
  }
};
// The share that is part of ExtentTree::InsertCredits.
uint32_t WindowCredits(const VolumeContext& context, uint32_t depth);

// While a level has more excess than extent_shape.h allows: moves entries between the nodes around `logical`, or to one
// node less. Then lowers the tree. Only as far as the allowance reaches: the tree is right without it. `removed`:
// entries were removed; otherwise only excess that is known and was left there by lack of credits is looked for.
absl::Status NarrowExtentTree(const ExtentOwner& owner, Handle& handle, LogicalBlock logical, bool removed,
                              CreditAllowance& allowance);
// False if a level is known to have more excess than that.
bool IsNarrow(const ExtentOwner& owner);

// True if the handle has `credits` left or got more.
inline bool EnsureCredits(Handle& handle, uint32_t credits) {
  return handle.credits_left() >= credits || handle.Extend(credits);
}

}  // namespace elidefs::core
