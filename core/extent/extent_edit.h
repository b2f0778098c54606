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
// for new nodes are allocated first: on failure (ENOSPC, EFBIG) the tree is unchanged.
absl::Status ReplaceExtents(const ExtentOwner& owner, Handle& handle, ExtentPath& path, uint32_t first_slot,
                            uint32_t old_count, absl::Span<const Extent> extents, bool promised);

// Frees a node's block and takes it out of the inode's block count. Credits: 3.
absl::Status FreeExtentNode(const ExtentOwner& owner, Handle& handle, BlockNumber block);

// While the root has a single child whose entries fit the root, moves them up and frees the child (credits: 3 each). A
// tree as low as possible is what e2fsck wants to see.
absl::Status LowerExtentTree(const ExtentOwner& owner, Handle& handle);

// True if the handle has `credits` left or got more.
inline bool EnsureCredits(Handle& handle, uint32_t credits) {
  return handle.credits_left() >= credits || handle.Extend(credits);
}

}  // namespace elidefs::core
