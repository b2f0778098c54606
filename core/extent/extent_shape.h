// How full the nodes of an extent tree are kept, so that e2fsck has nothing to remark. Pure arithmetic, no I/O.
//
// e2fsck's criterion (1.47, found by experiment): a tree "could be narrower" when the nodes of one level have together
// more excess than one block holds entries, where a node's excess is eh_max - 1 - eh_entries, at least 0. It does not
// matter where the excess is, so no rule that looks at a fixed number of neighbours could keep to it by filling nodes
// to some part. But eh_max may be up to two less than what fits the block. A node here states no more than that unless
// it has the entries, so that three entries short of full is no excess: kFreeUnused. A tree "could be shorter" when the
// entries of a level would fit a level above; for trees that are not too wide that is the case only if the root has
// room for those of its only child.
//
// So a node without room passes entries on to the nearest neighbour with room, and where there is none among
// WindowNodes() on either side, that many nodes are spread over one more, which makes no excess: the level is as narrow
// as before. Likewise, among that many nodes around one with excess the others either take it, or there is a node's
// worth of unused entries and one node can go.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/ondisk/inode_layout.h"

namespace elidefs::core {

inline constexpr uint32_t kMaxUnstatedEntries = 2;                // eh_max below what fits the block
inline constexpr uint32_t kFreeUnused = kMaxUnstatedEntries + 1;  // unused entries of a node that are no excess

inline uint32_t StatedCapacity(uint32_t capacity, uint32_t entries) {
  return std::max(entries, capacity - kMaxUnstatedEntries);
}
inline uint32_t ExtentExcess(uint32_t capacity, uint32_t entries) {
  return capacity - entries > kFreeUnused ? capacity - entries - kFreeUnused : 0;
}
// So many full nodes can be spread over one more without excess.
inline uint32_t WindowNodes(uint32_t capacity) {
  return capacity / kFreeUnused + 1;
}

// Part of an inode in memory, guarded by its mutex and maintained by ExtentTree; counted when first needed.
struct ExtentShape {
  bool known = false;
  // The sum over the blocks of a level, by their depth, 0: leaves. At most the capacity of a block, if e2fsck is to be
  // content.
  std::array<int64_t, kExtentMaxDepth + 1> excess = {};
  // The excess when a search for a way to lessen it found none: only for trees that were too wide when they came here.
  std::array<int64_t, kExtentMaxDepth + 1> vain_at = {};
};

}  // namespace elidefs::core
