// Stacked devices: one device made of several leaves, one behind the other (linear) or in turns of a chunk (stripe).
//
// A flush goes to every leaf and succeeds when all of them have; a request that is split completes at its last piece,
// with an error if any piece met one. So the whole keeps the contract of a single volatile cache, and one flush ledger
// over it is sound: E7 in its simplest form, which also flushes leaves that hold nothing new. Source: the kernel's
// Documentation/block/writeback_cache_control.rst, "stacking drivers"; the failed preflush of one child must reach the
// parent.
// Ownership: the stacked device owns its leaves. Threads: as BlockDevice asks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

struct StackedDeviceOptions {
  uint64_t chunk_bytes = 0;  // of a stripe; 0: linear
  // Planted bugs, for tests only.
  bool drop_child_error = false;       // the error of any but the first leaf is forgotten
  bool flush_first_leaf_only = false;  // breaks E7
};

// Capabilities are what all leaves have; native FUA asks it of every leaf with a volatile cache. Of a leaf's end what
// does not fill a block (linear) or, beyond the shortest leaf, a chunk (stripe) stays unused. EINVAL: no leaf, a chunk
// that is no multiple of the block or too small for the leaves' segment limit, a leaf smaller than a chunk.
absl::StatusOr<std::unique_ptr<BlockDevice>> StackDevices(std::vector<std::unique_ptr<BlockDevice>> leaves,
                                                          const StackedDeviceOptions& options);

}  // namespace elidefs::blockio
