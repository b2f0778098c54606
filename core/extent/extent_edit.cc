#include "core/extent/extent_edit.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/extent/place.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

using NewNodes = std::vector<BufferRef>;
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

}  // namespace

void CountEntries(const ExtentOwner& owner, const ExtentLevel& level, int64_t added) {
  if (level.buffer == nullptr) return;
  const uint32_t capacity = owner.BlockNodeCapacity();
  const uint32_t now = level.node.entries();
  const auto before = static_cast<uint32_t>(now - added);
  owner.shape->excess[level.node.depth()] +=
      static_cast<int64_t>(ExtentExcess(capacity, now)) - ExtentExcess(capacity, before);
}

uint32_t CapacityOf(const ExtentOwner& owner, const ExtentLevel& level) {
  return level.buffer == nullptr ? level.node.max() : owner.BlockNodeCapacity();
}

void SealExtentLevel(const ExtentOwner& owner, Handle& handle, const ExtentLevel& level) {
  if (level.buffer == nullptr) return;
  ExtentNode(level.buffer->data()).SetMax(StatedCapacity(owner.BlockNodeCapacity(), level.node.entries()));
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
  const uint32_t in_place = std::min(new_count, old_count);
  CreditAllowance allowance{&handle, WindowCredits(*owner.context, ExtentNode(owner.root).depth())};
  NewNodes nodes;
  std::optional<Placement> placement;
  if (new_count > old_count) {
    placement.emplace(owner, &path, first_slot + in_place, new_count - old_count, allowance);
    if (placement->grows() && path.levels.front().node.depth() >= kExtentMaxDepth) {
      return ErrnoError(EFBIG,
                        absl::StrCat("inode ", owner.inode, ": the extent tree is as deep as the format allows"));
    }
    ELIDEFS_RETURN_IF_ERROR(AllocateNewNodes(owner, handle, path, placement->new_nodes(), promised, &nodes));
    *owner.blocks_512 += owner.SectorsOf(nodes.size());
  }
  ExtentNode leaf = path.leaf().node;
  for (uint32_t i = 0; i < in_place; ++i) leaf.Put(first_slot + i, EncodeExtent(merged[i]));
  if (new_count < old_count) {
    leaf.RemoveAt(first_slot + in_place, old_count - in_place);
    CountEntries(owner, path.leaf(), static_cast<int64_t>(new_count) - old_count);
  }
  if (in_place > 0) {
    if (first_slot == 0) PropagateFirstKey(owner, handle, path, path.levels.size() - 1);
    SealExtentLevel(owner, handle, path.leaf());
  }
  absl::Status status;
  if (placement.has_value()) {
    std::vector<ExtentSlot> added;
    for (uint32_t i = in_place; i < new_count; ++i) added.push_back(EncodeExtent(merged[i]));
    status = placement->CarryOut(handle, std::move(added), std::move(nodes));
  }
  if (status.ok()) {
    status = NarrowExtentTree(owner, handle, merged.front().logical, new_count < old_count, allowance);
  }
  if (!status.ok()) owner.context->journal->Abort(status);
  return status;
}

absl::Status FreeExtentNode(const ExtentOwner& owner, Handle& handle, const ExtentLevel& level) {
  ELIDEFS_RETURN_IF_ERROR(owner.context->blocks->Free(handle, BlockRange{level.block(), 1}, /*metadata=*/true));
  owner.shape->excess[level.node.depth()] -= ExtentExcess(owner.BlockNodeCapacity(), level.node.entries());
  *owner.blocks_512 -= std::min(*owner.blocks_512, owner.SectorsOf(1));
  return absl::OkStatus();
}

absl::Status RemoveEmptyNodes(const ExtentOwner& owner, Handle& handle, ExtentPath& path) {
  while (path.levels.size() > 1 && path.leaf().node.entries() == 0) {
    ELIDEFS_RETURN_IF_ERROR(FreeExtentNode(owner, handle, path.leaf()));
    path.levels.pop_back();
    ExtentLevel& parent = path.leaf();
    parent.node.RemoveAt(parent.slot, 1);
    CountEntries(owner, parent, -1);
    if (parent.node.entries() > 0) {
      if (parent.slot == 0) PropagateFirstKey(owner, handle, path, path.levels.size() - 1);
      SealExtentLevel(owner, handle, parent);
    }
  }
  ExtentLevel& root = path.levels.front();
  if (root.node.entries() == 0) root.node.SetDepth(0);
  return absl::OkStatus();
}

absl::Status LowerExtentTree(const ExtentOwner& owner, Handle& handle) {
  ExtentLevel root;
  root.node = ExtentNode(owner.root);
  while (root.node.depth() > 0 && root.node.entries() == 1) {
    ELIDEFS_ASSIGN_OR_RETURN(ExtentLevel child, ReadExtentChild(owner, root, 0, kLogicalBlockEnd));
    if (child.node.entries() > root.node.max()) break;
    ELIDEFS_RETURN_IF_ERROR(FreeExtentNode(owner, handle, child));
    root.node.RemoveAt(0, 1);
    root.node.SetDepth(child.node.depth());
    child.node.MoveTail(0, root.node);
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
