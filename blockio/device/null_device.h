// NullDevice: answers every request and stores nothing, as drivers/block/null_blk does: what remains is the cost of the
// block layer itself. For tests and benchmarks; the daemon cannot mount it.
//
// Reads leave their buffers as they were. Threads: as BlockDevice says. Without a latency requests complete inside
// Submit; with one, on a thread of the queue, no sooner than that after Submit and in the order of submission among
// requests of the same latency.
#pragma once

#include <cstdint>
#include <memory>

#include "elidefs/block_device.h"

namespace elidefs::blockio {

struct NullDeviceOptions {
  uint64_t size_bytes = 1ULL << 40U;
  uint32_t max_queues = 64;
  bool volatile_cache = false;
  uint64_t latency_us = 0;        // of all but flushes
  uint64_t flush_latency_us = 0;  // if either is not 0, all complete on the thread
};

class NullDevice : public BlockDevice {
 public:
  static std::unique_ptr<NullDevice> Create(const NullDeviceOptions& options);
  virtual uint64_t flushes() const = 0;  // completed ones
};

}  // namespace elidefs::blockio
