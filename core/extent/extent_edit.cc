#include "core/extent/extent_edit.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

using NewNodes = absl::InlinedVector<BufferRef, 4>;
using Extents = absl::InlinedVector<Extent, 5>;

Extents Merge(absl::Span<const Extent> extents) {
  Extents merged;
  for (const Extent& extent : extents) {
    if (!merged.empty() && CanMerge(merged.back(), extent)) {
      merged.back().length += extent.length;
    } else {
      merged.push_back(extent);
    }
  }
  return merged;
}

// How many blocks `additional` more entries in the path's leaf can need: one for each full node from the leaf upwards,
// the root's being its copy one level down.
uint32_t CountNewNodes(const ExtentPath& path, uint32_t additional) {
  uint32_t count = 0;
  for (auto level = path.levels.rbegin(); level != path.levels.rend(); ++level) {
    if (level->node.entries() + additional <= level->node.max()) break;
    ++count;
    additional = 1;
  }
  return count;
}

// Undoes a partial allocation; its own failure would be damage that the allocator has reported.
void DropNewNodes(const ExtentOwner& owner, Handle& handle, NewNodes& nodes) {
  for (const BufferRef& node : nodes) {
    owner.context->blocks->Free(handle, BlockRange{node->block_number(), 1}, /*metadata=*/true).IgnoreError();
  }
  nodes.clear();
}

absl::Status AllocateNewNodes(const ExtentOwner& owner, Handle& handle, const ExtentPath& path, uint32_t count,
                              bool promised, NewNodes* nodes) {
  // Next to the leaf when it has a block: beside the data, a node would sit where the file wants to grow.
  const ExtentLevel& leaf = path.levels.back();
  BlockNumber goal = leaf.buffer != nullptr ? leaf.block() + 1 : owner.context->blocks->GoalForInode(owner.inode);
  while (nodes->size() < count) {
    absl::StatusOr<BlockNumber> block = owner.context->blocks->AllocateMetadata(handle, goal, promised);
    if (!block.ok()) {
      DropNewNodes(owner, handle, *nodes);
      return block.status();
    }
    absl::StatusOr<BufferRef> buffer = owner.context->cache->GetZeroed(*block);
    if (!buffer.ok()) {
      owner.context->blocks->Free(handle, BlockRange{*block, 1}, /*metadata=*/true).IgnoreError();
      DropNewNodes(owner, handle, *nodes);
      return buffer.status();
    }
    nodes->push_back(*std::move(buffer));
    goal = *block + 1;
  }
  return absl::OkStatus();
}

ExtentLevel TakeNewNode(const ExtentOwner& owner, NewNodes& nodes, uint32_t depth) {
  assert(!nodes.empty());
  ExtentLevel level;
  level.buffer = std::move(nodes.back());
  nodes.pop_back();
  level.node = ExtentNode(level.buffer->data());
  level.node.Initialize(owner.BlockNodeCapacity(), depth);
  return level;
}

// Adds a level: the root's entries move into a block of their own, the root keeps one entry that points there.
void Grow(const ExtentOwner& owner, Handle& handle, ExtentPath& path, NewNodes& nodes) {
  ExtentLevel& root = path.levels.front();
  ExtentLevel copy = TakeNewNode(owner, nodes, root.node.depth());
  copy.slot = root.slot;
  root.node.MoveTail(0, copy.node);
  root.node.SetDepth(root.node.depth() + 1);
  root.node.InsertAt(0, EncodeIndex(copy.node.Key(0), copy.block()));
  root.slot = 0;
  SealExtentLevel(owner, handle, copy);
  path.levels.insert(path.levels.begin() + 1, std::move(copy));
}

// Puts `entry` at `slot` of `levels[level]`, splitting full nodes upwards. Somewhere on the way is a node with room.
void InsertEntry(const ExtentOwner& owner, Handle& handle, ExtentPath& path, size_t level, uint32_t slot,
                 const ExtentSlot& entry, NewNodes& nodes) {
  ExtentLevel& left = path.levels[level];
  if (!left.node.full()) {
    left.node.InsertAt(slot, entry);
    if (slot == 0) PropagateFirstKey(owner, handle, path, level);
    SealExtentLevel(owner, handle, left);
    return;
  }
  assert(level > 0);
  ExtentLevel right = TakeNewNode(owner, nodes, left.node.depth());
  // At the right edge the full node stays full, so that a file written in order has dense leaves. Slot 0 is the tree's
  // left edge (elsewhere a leaf's first key is its parent's): what was there moves as a whole.
  const bool edge = slot == left.node.entries() || slot == 0;
  const uint32_t split = edge ? slot : left.node.entries() / 2;
  left.node.MoveTail(split, right.node);
  if (slot > split || slot == left.node.max()) {
    right.node.InsertAt(slot - split, entry);
  } else {
    left.node.InsertAt(slot, entry);
    if (slot == 0) PropagateFirstKey(owner, handle, path, level);
  }
  SealExtentLevel(owner, handle, left);
  SealExtentLevel(owner, handle, right);
  InsertEntry(owner, handle, path, level - 1, path.levels[level - 1].slot + 1,
              EncodeIndex(right.node.Key(0), right.block()), nodes);
}

}  // namespace

void SealExtentLevel(const ExtentOwner& owner, Handle& handle, const ExtentLevel& level) {
  if (level.buffer == nullptr) return;
  // The pair of the checks on the way in.
  assert(CheckExtentHeader(owner, level.block(), level.node, level.buffer->size_bytes(), kAnyDepth).ok());
  assert(CheckExtentEntries(owner, level.block(), level.node, 0, kLogicalBlockEnd).ok());
  SetExtentBlockChecksum(owner.geometry(), owner.checksum_seed, level.buffer->data());
  handle.Dirty(level.buffer);
}

void PropagateFirstKey(const ExtentOwner& owner, Handle& handle, ExtentPath& path, size_t level) {
  const LogicalBlock key = path.levels[level].node.Key(0);
  for (; level > 0; --level) {
    ExtentLevel& parent = path.levels[level - 1];
    if (parent.node.Key(parent.slot) == key) return;
    parent.node.SetKey(parent.slot, key);
    SealExtentLevel(owner, handle, parent);
    if (parent.slot != 0) return;
  }
}

absl::Status ReplaceExtents(const ExtentOwner& owner, Handle& handle, ExtentPath& path, uint32_t first_slot,
                            uint32_t old_count, absl::Span<const Extent> extents, bool promised) {
  const Extents merged = Merge(extents);
  const auto new_count = static_cast<uint32_t>(merged.size());
  NewNodes nodes;
  if (new_count > old_count) {
    const uint32_t needed = CountNewNodes(path, new_count - old_count);
    if (needed == path.levels.size() && path.levels.front().node.depth() >= kExtentMaxDepth) {
      return ErrnoError(EFBIG,
                        absl::StrCat("inode ", owner.inode, ": the extent tree is as deep as the format allows"));
    }
    ELIDEFS_RETURN_IF_ERROR(AllocateNewNodes(owner, handle, path, needed, promised, &nodes));
    *owner.blocks_512 += owner.SectorsOf(nodes.size());
  }
  const uint32_t in_place = std::min(new_count, old_count);
  ExtentNode leaf = path.leaf().node;
  for (uint32_t i = 0; i < in_place; ++i) leaf.Put(first_slot + i, EncodeExtent(merged[i]));
  if (new_count < old_count) leaf.RemoveAt(first_slot + in_place, old_count - in_place);
  if (in_place > 0) {
    if (first_slot == 0) PropagateFirstKey(owner, handle, path, path.levels.size() - 1);
    SealExtentLevel(owner, handle, path.leaf());
  }
  for (uint32_t i = in_place; i < new_count; ++i) {
    uint32_t slot = first_slot + i;
    if (i > in_place) {
      // The first insertion may have split the leaf.
      ELIDEFS_ASSIGN_OR_RETURN(path, DescendExtents(owner, merged[i].logical));
      slot = path.leaf().slot;
    }
    if (path.all_full()) Grow(owner, handle, path, nodes);
    InsertEntry(owner, handle, path, path.levels.size() - 1, slot, EncodeExtent(merged[i]), nodes);
  }
  assert(nodes.empty());
  return new_count < old_count ? LowerExtentTree(owner, handle) : absl::OkStatus();
}

absl::Status FreeExtentNode(const ExtentOwner& owner, Handle& handle, BlockNumber block) {
  ELIDEFS_RETURN_IF_ERROR(owner.context->blocks->Free(handle, BlockRange{block, 1}, /*metadata=*/true));
  *owner.blocks_512 -= std::min(*owner.blocks_512, owner.SectorsOf(1));
  return absl::OkStatus();
}

absl::Status LowerExtentTree(const ExtentOwner& owner, Handle& handle) {
  ExtentLevel root;
  root.node = ExtentNode(owner.root);
  while (root.node.depth() > 0 && root.node.entries() == 1) {
    ELIDEFS_ASSIGN_OR_RETURN(ExtentLevel child, ReadExtentChild(owner, root, 0, kLogicalBlockEnd));
    if (child.node.entries() > root.node.max()) break;
    ELIDEFS_RETURN_IF_ERROR(FreeExtentNode(owner, handle, child.block()));
    root.node.RemoveAt(0, 1);
    root.node.SetDepth(child.node.depth());
    child.node.MoveTail(0, root.node);
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
