#include "core/extent/extent_window.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "core/extent/extent_edit.h"

namespace elidefs::core {
namespace {

uint32_t EntriesOf(const ExtentPath& path) {
  return path.levels.back().node.entries();
}

// Sets the keys above a node to its first one.
void CorrectKeys(ExtentPath& path, std::vector<const ExtentLevel*>* changed) {
  const LogicalBlock key = path.levels.back().node.Key(0);
  for (size_t level = path.levels.size() - 1; level > 0; --level) {
    ExtentLevel& parent = path.levels[level - 1];
    if (parent.node.Key(parent.slot) != key) {
      parent.node.SetKey(parent.slot, key);
      const bool known = std::any_of(changed->begin(), changed->end(),
                                     [&parent](const ExtentLevel* other) { return other->buffer == parent.buffer; });
      if (!known) changed->push_back(&parent);
    }
    if (parent.slot != 0) return;
  }
}

}  // namespace

uint32_t ExtentWindow::Credits() const {
  uint32_t credits = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    for (size_t level = 1; level < paths[i].levels.size(); ++level) {
      if (i == 0 || paths[i].levels[level].buffer != paths[i - 1].levels[level].buffer) ++credits;
    }
  }
  return credits;
}

ExtentWindowSearch::ExtentWindowSearch(const ExtentOwner& owner, const ExtentPath& path)
    : owner_(owner),
      home_(path),
      home_unused_(owner.BlockNodeCapacity() - EntriesOf(path)),
      home_excess_(ExtentExcess(owner.BlockNodeCapacity(), EntriesOf(path))) {}

absl::StatusOr<bool> ExtentWindowSearch::Widen() {
  while (!left_.exhausted || !right_.exhausted) {
    const bool to_right = left_.exhausted || (!right_.exhausted && right_.paths.size() <= left_.paths.size());
    Side& side = to_right ? right_ : left_;
    const ExtentPath& from = side.paths.empty() ? home_ : side.paths.back();
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath next, DescendToNeighbour(owner_, from, to_right));
    if (!next.levels.empty()) {
      side.unused += owner_.BlockNodeCapacity() - EntriesOf(next);
      side.excess += ExtentExcess(owner_.BlockNodeCapacity(), EntriesOf(next));
      side.paths.push_back(std::move(next));
      return true;
    }
    side.exhausted = true;
  }
  return false;
}

ExtentWindow ExtentWindowSearch::Take() {
  ExtentWindow window;
  window.home = left_.paths.size();
  window.paths.assign(std::make_move_iterator(left_.paths.rbegin()), std::make_move_iterator(left_.paths.rend()));
  window.paths.push_back(home_);
  window.paths.insert(window.paths.end(), std::make_move_iterator(right_.paths.begin()),
                      std::make_move_iterator(right_.paths.end()));
  return window;
}

ExtentWindow ExtentWindowSearch::TakeOneSide() {
  (right_.unused >= left_.unused ? left_ : right_).paths.clear();
  return Take();
}

absl::Status SpreadExtentWindow(const ExtentOwner& owner, Handle& handle, ExtentWindow& window, uint32_t position,
                                absl::Span<const ExtentSlot> added, ExtentLevel* fresh, bool drop_last) {
  std::vector<ExtentSlot> entries;
  std::vector<ExtentLevel*> nodes;
  for (size_t i = 0; i < window.paths.size(); ++i) {
    ExtentLevel& level = window.paths[i].levels.back();
    nodes.push_back(&level);
    for (uint32_t slot = 0; slot < level.node.entries(); ++slot) entries.push_back(level.node.Get(slot));
    if (fresh != nullptr && i == window.home) nodes.push_back(fresh);
  }
  entries.insert(entries.begin() + position, added.begin(), added.end());
  const size_t used = nodes.size() - (drop_last ? 1 : 0);
  assert(entries.size() <= used * owner.BlockNodeCapacity() && entries.size() >= used);
  absl::Span<const ExtentSlot> rest = entries;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t count = i < used ? rest.size() / (used - i) : 0;
    const uint32_t before = nodes[i]->node.entries();
    nodes[i]->node.Assign(rest.subspan(0, count));
    CountEntries(owner, *nodes[i], static_cast<int64_t>(count) - before);
    rest.remove_prefix(count);
  }
  std::vector<const ExtentLevel*> changed;
  for (ExtentPath& path : window.paths) {
    if (EntriesOf(path) > 0) CorrectKeys(path, &changed);
  }
  // Before its parent is sealed: the key of the emptied node may be out of order there.
  if (drop_last) ELIDEFS_RETURN_IF_ERROR(RemoveEmptyNodes(owner, handle, window.paths.back()));
  for (const ExtentLevel* level : changed) SealExtentLevel(owner, handle, *level);
  for (size_t i = 0; i < used; ++i) SealExtentLevel(owner, handle, *nodes[i]);
  return absl::OkStatus();
}

}  // namespace elidefs::core
