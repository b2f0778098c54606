// Placement: how new entries get room in a node of an extent tree, by moving others to its neighbours or by new nodes.
// In two steps, so that what can fail, the allocation of new nodes, lies between them. Used as
// core/extent/extent_edit.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_node.h"
#include "core/extent/extent_window.h"

namespace elidefs::core {

class Placement {
 public:
  // Decides how `count` entries get to `slot` of the path's leaf; changes nothing. The path must outlive the object.
  Placement(const ExtentOwner& owner, ExtentPath* path, uint32_t slot, uint32_t count, CreditAllowance& allowance);

  uint32_t new_nodes() const;
  bool grows() const { return steps_.back().kind == Kind::kGrow; }
  // `nodes`: new_nodes() zeroed blocks, which are used up.
  absl::Status CarryOut(Handle& handle, std::vector<ExtentSlot> entries, std::vector<BufferRef> nodes);

 private:
  enum class Kind {
    kRoom,     // the node has room
    kGrow,     // it is the root: its entries move to a new node, which has room
    kShift,    // the window has room
    kSpread,   // the window gets a new node
    kAppend,   // at the tree's right edge: the new entries alone go to a new node
    kPrepend,  // at its left edge: the old ones do
  };
  struct Step {
    Kind kind = Kind::kRoom;
    ExtentWindow window;
  };

  Step Choose(size_t level, uint32_t count, Kind edge, CreditAllowance& allowance) const;
  Step ChooseSpread(const ExtentPath& here, CreditAllowance& allowance) const;
  ExtentLevel TakeNewNode(uint32_t depth);
  void Grow(Handle& handle);
  void SplitAtEdge(Handle& handle, size_t level, size_t split, const std::vector<ExtentSlot>& added, uint32_t slot,
                   ExtentLevel& right);

  const ExtentOwner& owner_;
  ExtentPath& path_;
  const uint32_t slot_;
  std::vector<Step> steps_;  // from the leaf upwards; one of the first three kinds ends it
  std::vector<BufferRef> nodes_;
};

}  // namespace elidefs::core
