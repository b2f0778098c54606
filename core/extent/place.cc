#include "core/extent/place.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"

namespace elidefs::core {
namespace {

// Neighbours looked at before a node is split although the level may have another one: with room close by the tree
// stays dense and later ways short.
constexpr uint32_t kNearNodes = 3;

ExtentPath PathToLevel(const ExtentPath& path, size_t level) {
  ExtentPath result;
  result.levels.assign(path.levels.begin(), path.levels.begin() + static_cast<std::ptrdiff_t>(level) + 1);
  return result;
}

bool IsLastOfItsLevel(const ExtentPath& path, size_t level) {
  for (size_t i = 0; i < level; ++i) {
    if (path.levels[i].slot + 1 < path.levels[i].node.entries()) return false;
  }
  return true;
}

}  // namespace

Placement::Placement(const ExtentOwner& owner, ExtentPath* path, uint32_t slot, uint32_t count,
                     CreditAllowance& allowance)
    : owner_(owner), path_(*path), slot_(slot) {
  bool left_edge = slot == 0;  // elsewhere a leaf's first key is its parent's
  for (size_t level = path_.levels.size() - 1;; --level) {
    const ExtentLevel& here = path_.levels[level];
    Step step;
    if (here.node.entries() + count <= CapacityOf(owner, here)) {
      step.kind = Kind::kRoom;
    } else if (level == 0) {
      step.kind = Kind::kGrow;
    } else {
      const bool right_edge = slot == here.node.entries() && IsLastOfItsLevel(path_, level);
      step = Choose(level, count, right_edge ? Kind::kAppend : left_edge ? Kind::kPrepend : Kind::kSpread, allowance);
    }
    steps_.push_back(std::move(step));
    if (steps_.back().kind <= Kind::kShift) return;
    left_edge = left_edge && path_.levels[level - 1].slot == 0;
    slot = path_.levels[level - 1].slot + 1;
    count = 1;
  }
}

// What cannot be read elsewhere in the tree does not concern this insertion: the node is split.
Placement::Step Placement::Choose(size_t level, uint32_t count, Kind edge, CreditAllowance& allowance) const {
  Step step;
  const ExtentPath here = PathToLevel(path_, level);
  const uint32_t capacity = owner_.BlockNodeCapacity();
  const bool counted = CountExtentShape(owner_).ok();
  const int64_t excess = owner_.shape->excess[here.levels.back().node.depth()];
  const bool may_add = !counted || excess + ExtentExcess(capacity, count) <= capacity;
  if (may_add && edge != Kind::kSpread) {
    step.kind = edge;
    return step;
  }
  ExtentWindowSearch search(owner_, here);
  const uint32_t limit = may_add ? kNearNodes : 2 * WindowNodes(capacity);
  while (search.unused_on_one_side() < count && search.nodes() < limit) {
    const absl::StatusOr<bool> wider = search.Widen();
    if (!wider.ok() || !*wider) break;
  }
  if (search.unused_on_one_side() >= count) {
    step.kind = Kind::kShift;
    step.window = search.TakeOneSide();
    if (allowance.Take(step.window.Credits())) return step;
  }
  return ChooseSpread(here, allowance);
}

// As few nodes as keep the level narrow, or as many as there are credits for.
Placement::Step Placement::ChooseSpread(const ExtentPath& here, CreditAllowance& allowance) const {
  const uint32_t capacity = owner_.BlockNodeCapacity();
  const int64_t excess = owner_.shape->excess[here.levels.back().node.depth()];
  const auto narrow_with = [&](const ExtentWindowSearch& search) {
    const uint32_t nodes = search.nodes() + 1;
    const uint32_t unused_each = (search.unused() + capacity + nodes - 1) / nodes;
    const uint32_t new_excess = nodes * ExtentExcess(capacity, capacity - unused_each);
    return excess - search.excess() + new_excess <= capacity;
  };
  Step step;
  step.kind = Kind::kSpread;
  for (uint32_t limit = WindowNodes(capacity);; limit /= 2) {
    ExtentWindowSearch search(owner_, here);
    while (!narrow_with(search) && search.nodes() < limit) {
      const absl::StatusOr<bool> wider = search.Widen();
      if (!wider.ok() || !*wider) break;
    }
    step.window = search.Take();
    // A node alone is split within what every insertion may take.
    if (step.window.paths.size() == 1 || allowance.Take(step.window.Credits())) return step;
  }
}

uint32_t Placement::new_nodes() const {
  return static_cast<uint32_t>(steps_.size()) - (grows() ? 0 : 1);
}

ExtentLevel Placement::TakeNewNode(uint32_t depth) {
  assert(!nodes_.empty());
  ExtentLevel level;
  level.buffer = std::move(nodes_.back());
  nodes_.pop_back();
  level.node = ExtentNode(level.buffer->data());
  level.node.Initialize(StatedCapacity(owner_.BlockNodeCapacity(), 0), depth);
  owner_.shape->excess[depth] += ExtentExcess(owner_.BlockNodeCapacity(), 0);
  return level;
}

// Adds a level: the root's entries move into a block of their own, the root keeps one entry that points there.
void Placement::Grow(Handle& handle) {
  ExtentLevel& root = path_.levels.front();
  ExtentLevel copy = TakeNewNode(root.node.depth());
  copy.slot = root.slot;
  root.node.MoveTail(0, copy.node);
  CountEntries(owner_, copy, copy.node.entries());
  root.node.SetDepth(root.node.depth() + 1);
  root.node.InsertAt(0, EncodeIndex(copy.node.Key(0), copy.block()));
  root.slot = 0;
  SealExtentLevel(owner_, handle, copy);
  path_.levels.insert(path_.levels.begin() + 1, std::move(copy));
}

void Placement::SplitAtEdge(Handle& handle, size_t level, size_t split, const std::vector<ExtentSlot>& added,
                            uint32_t slot, ExtentLevel& right) {
  ExtentLevel& left = path_.levels[level];
  std::vector<ExtentSlot> entries;
  for (uint32_t i = 0; i < left.node.entries(); ++i) entries.push_back(left.node.Get(i));
  entries.insert(entries.begin() + slot, added.begin(), added.end());
  const absl::Span<const ExtentSlot> all = entries;
  const bool left_changes = split != left.node.entries() || slot < split;
  const uint32_t before = left.node.entries();
  right.node.Assign(all.subspan(split));
  CountEntries(owner_, right, right.node.entries());
  SealExtentLevel(owner_, handle, right);
  // An append leaves the old node, which may be long on the disk, as it is.
  if (!left_changes) return;
  left.node.Assign(all.subspan(0, split));
  CountEntries(owner_, left, static_cast<int64_t>(split) - before);
  if (slot == 0) PropagateFirstKey(owner_, handle, path_, level);
  SealExtentLevel(owner_, handle, left);
}

absl::Status Placement::CarryOut(Handle& handle, std::vector<ExtentSlot> entries, std::vector<BufferRef> nodes) {
  nodes_ = std::move(nodes);
  size_t level = path_.levels.size() - 1;
  uint32_t slot = slot_;
  for (Step& step : steps_) {
    if (step.kind == Kind::kRoom || step.kind == Kind::kGrow) {
      if (step.kind == Kind::kGrow) {
        Grow(handle);
        level = 1;
      }
      ExtentLevel& here = path_.levels[level];
      for (size_t i = 0; i < entries.size(); ++i) here.node.InsertAt(slot + static_cast<uint32_t>(i), entries[i]);
      CountEntries(owner_, here, static_cast<int64_t>(entries.size()));
      if (slot == 0) PropagateFirstKey(owner_, handle, path_, level);
      SealExtentLevel(owner_, handle, here);
      break;
    }
    uint32_t position = slot;
    for (size_t i = 0; i < step.window.home && i < step.window.paths.size(); ++i) {
      position += step.window.paths[i].levels.back().node.entries();
    }
    if (step.kind == Kind::kShift) {
      ELIDEFS_RETURN_IF_ERROR(
          SpreadExtentWindow(owner_, handle, step.window, position, entries, nullptr, /*drop_last=*/false));
      break;
    }
    ExtentLevel fresh = TakeNewNode(path_.levels[level].node.depth());
    if (step.kind == Kind::kSpread) {
      ELIDEFS_RETURN_IF_ERROR(
          SpreadExtentWindow(owner_, handle, step.window, position, entries, &fresh, /*drop_last=*/false));
    } else {
      const size_t split = step.kind == Kind::kAppend ? slot : slot + entries.size();
      SplitAtEdge(handle, level, split, entries, slot, fresh);
    }
    entries = {EncodeIndex(fresh.node.Key(0), fresh.block())};
    --level;
    slot = path_.levels[level].slot + 1;
  }
  assert(nodes_.empty());
  return absl::OkStatus();
}

}  // namespace elidefs::core
