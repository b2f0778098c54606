// ExtentWindow: neighbouring nodes of one level of an extent tree, whose entries can be spread anew over them. Used as
// core/extent/extent_edit.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/extent/extent_node.h"
#include "core/journal/journal.h"

namespace elidefs::core {

struct ExtentWindow {
  std::vector<ExtentPath> paths;  // in order, each ends at a node of the window
  size_t home = 0;                // the one that the search began with

  bool empty() const { return paths.empty(); }
  // Blocks that change when the entries are spread anew: the nodes, and those above whose keys follow.
  uint32_t Credits() const;
};

// Looks at the nodes on both sides of the last one of `path`, in turn.
class ExtentWindowSearch {
 public:
  ExtentWindowSearch(const ExtentOwner& owner, const ExtentPath& path);

  // One node more; false if there is none.
  absl::StatusOr<bool> Widen();
  uint32_t nodes() const { return static_cast<uint32_t>(1 + left_.paths.size() + right_.paths.size()); }
  uint32_t unused() const { return home_unused_ + left_.unused + right_.unused; }
  uint32_t excess() const { return home_excess_ + left_.excess + right_.excess; }
  // Of the first node and those on the side that has more.
  uint32_t unused_on_one_side() const { return home_unused_ + std::max(left_.unused, right_.unused); }
  // What was found; the search is over.
  ExtentWindow Take();
  ExtentWindow TakeOneSide();

 private:
  struct Side {
    bool exhausted = false;
    uint32_t unused = 0;
    uint32_t excess = 0;
    std::vector<ExtentPath> paths;  // the nearest first
  };

  const ExtentOwner& owner_;
  const ExtentPath home_;
  const uint32_t home_unused_;
  const uint32_t home_excess_;
  Side left_;
  Side right_;
};

// Spreads the window's entries, with `added` before the one at `position` (counted over all nodes), so that all nodes
// have about the same number of unused entries. `fresh` (may be null), which has no entry above it yet, becomes the one
// after `home`. With `drop_last` the last node goes, for which 3 credits a level are due. Corrects the keys above. The
// entries fit, and are at least as many as nodes. Fails only with `drop_last`, on damage that the allocator reports.
absl::Status SpreadExtentWindow(const ExtentOwner& owner, Handle& handle, ExtentWindow& window, uint32_t position,
                                absl::Span<const ExtentSlot> added, ExtentLevel* fresh, bool drop_last);

}  // namespace elidefs::core
