// Keeps the levels of an extent tree as full as extent_shape.h says, after entries were removed.
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_tree.h"
#include "core/extent/extent_window.h"

namespace elidefs::core {
namespace {

// The lowest depth whose nodes have too much excess; -1: none.
int TooWideDepth(const ExtentOwner& owner) {
  if (!owner.shape->known) return -1;
  const uint32_t root_depth = ExtentNode(owner.root).depth();
  for (uint32_t depth = 0; depth < root_depth; ++depth) {
    if (owner.shape->excess[depth] > owner.BlockNodeCapacity()) return static_cast<int>(depth);
  }
  return -1;
}

// A search looks at hundreds of nodes: after one in vain the next is due when the excess has changed by a part of a
// node.
bool IsWorthSearching(const ExtentOwner& owner, uint32_t depth) {
  const int64_t vain_at = owner.shape->vain_at[depth];
  const int64_t change = owner.shape->excess[depth] - vain_at;
  return vain_at == 0 || std::abs(change) >= owner.BlockNodeCapacity() / 4;
}

// False if nothing is gained within reach.
absl::StatusOr<bool> ReduceExcess(const ExtentOwner& owner, Handle& handle, LogicalBlock logical, uint32_t depth,
                                  CreditAllowance& allowance) {
  ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, logical));
  const size_t level = path.levels.size() - 1 - depth;
  path.levels.resize(level + 1);
  const uint32_t capacity = owner.BlockNodeCapacity();
  const int64_t surplus = owner.shape->excess[depth] - capacity;
  ExtentWindowSearch search(owner, path);
  bool one_less = false;
  while (true) {
    one_less = search.nodes() > 1 && search.unused() >= capacity;
    const uint32_t unused_each = (search.unused() + search.nodes() - 1) / search.nodes();
    const uint32_t left = search.nodes() * ExtentExcess(capacity, capacity - unused_each);
    if (one_less || static_cast<int64_t>(search.excess()) - left >= surplus) break;
    const absl::StatusOr<bool> wider = search.nodes() < 2 * WindowNodes(capacity) ? search.Widen() : false;
    // What cannot be read here is reported to whoever needs it.
    if (!wider.ok() || !*wider) {
      owner.shape->vain_at[depth] = owner.shape->excess[depth];
      return false;
    }
  }
  ExtentWindow window = search.Take();
  if (window.paths.size() < 2) return false;
  if (!allowance.Take(window.Credits() + (one_less ? static_cast<uint32_t>(level) * kNodeFreeCredits : 0))) {
    return false;
  }
  ELIDEFS_RETURN_IF_ERROR(SpreadExtentWindow(owner, handle, window, 0, {}, nullptr, one_less));
  return true;
}

absl::Status CountBelow(const ExtentOwner& owner, const ExtentLevel& parent, uint64_t upper, ExtentShape* shape) {
  for (uint32_t slot = 0; slot < parent.node.entries(); ++slot) {
    const uint64_t child_upper = slot + 1 < parent.node.entries() ? parent.node.Key(slot + 1) : upper;
    ELIDEFS_ASSIGN_OR_RETURN(const ExtentLevel child, ReadExtentChild(owner, parent, slot, child_upper));
    shape->excess[child.node.depth()] += ExtentExcess(owner.BlockNodeCapacity(), child.node.entries());
    // Ends: the depth decreases, which ReadExtentChild checks.
    if (child.node.depth() > 0) ELIDEFS_RETURN_IF_ERROR(CountBelow(owner, child, child_upper, shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CountExtentShape(const ExtentOwner& owner) {
  if (owner.shape->known) return absl::OkStatus();
  ExtentLevel root;
  root.node = ExtentNode(owner.root);
  ExtentShape shape;
  if (root.node.depth() > 0) ELIDEFS_RETURN_IF_ERROR(CountBelow(owner, root, kLogicalBlockEnd, &shape));
  shape.known = true;
  *owner.shape = shape;
  return absl::OkStatus();
}

void ExtentTree::PrepareInsert(LogicalBlock logical) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  if (owner.shape->known || ExtentNode(owner.root).depth() == 0) return;
  absl::StatusOr<ExtentPath> path = DescendExtents(owner, logical);
  // Only a node without room asks for the shape. One extent may become three.
  if (path.ok() && path->leaf().node.entries() + 2 > owner.BlockNodeCapacity()) CountExtentShape(owner).IgnoreError();
}

void ExtentTree::PrepareTruncate(LogicalBlock first) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  if (owner.shape->known || ExtentNode(owner.root).depth() == 0) return;
  absl::StatusOr<ExtentPath> path = DescendExtents(owner, kLogicalBlockEnd - 1);
  if (!path.ok()) return;
  const uint32_t entries = path->leaf().node.entries();
  if (entries == 0 || path->leaf().node.At(entries - 1).end() > first) CountExtentShape(owner).IgnoreError();
}

bool IsNarrow(const ExtentOwner& owner) {
  return TooWideDepth(owner) < 0;
}

absl::Status NarrowExtentTree(const ExtentOwner& owner, Handle& handle, LogicalBlock logical, bool removed,
                              CreditAllowance& allowance) {
  if (ExtentNode(owner.root).depth() == 0) return absl::OkStatus();
  if (removed) CountExtentShape(owner).IgnoreError();
  // Ends: every round lessens the excess.
  for (int depth = TooWideDepth(owner); depth >= 0; depth = TooWideDepth(owner)) {
    if (!IsWorthSearching(owner, static_cast<uint32_t>(depth))) break;
    const int64_t before = owner.shape->excess[depth];
    ELIDEFS_ASSIGN_OR_RETURN(const bool changed,
                             ReduceExcess(owner, handle, logical, static_cast<uint32_t>(depth), allowance));
    if (!changed || owner.shape->excess[depth] >= before) break;
    removed = true;
  }
  return removed ? LowerExtentTree(owner, handle) : absl::OkStatus();
}

}  // namespace elidefs::core
