// RequestQueue: the block layer's front door over one BlockDevice, modelled on Linux blk-mq (block/blk-mq.c).
//
//   Submit -> QuiesceRef enter -> HardwareQueue (tag, or wait for one) -> [FlushQueue sequence] -> DeviceQueue
//   completion -> ledger need (E2) -> tag released -> next waiter dispatched -> Bio::end_io
//
// Ownership: borrows the device; owns its hardware queues, flush queues and the leaf's FlushLedger. All bios must have
// ended before it is destroyed (Freeze first). Threads: thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "blockio/bio.h"
#include "blockio/flush_ledger.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

class HardwareQueue;

struct RequestQueueOptions {
  uint32_t hardware_queues = 0;  // 0: one per CPU, at most 4 and at most the device's max_queues
  // Tags per hardware queue, 2..1024. Where the memory does not suffice all queues get half as many, and so on;
  // HardwareQueueStats tells the depth that was reached.
  uint32_t queue_depth = 64;
  uint32_t flush_starvation_ms = 5000;  // C3: a flush deferred for longer than this overrides C2
  uint32_t write_cache_poll_ms = 1000;  // E8: how often a device without a volatile cache is asked whether it has one
};

struct HardwareQueueStats {
  uint32_t depth = 0;
  uint32_t in_flight = 0;
  uint64_t dispatched = 0;
  uint64_t completed = 0;
  uint64_t flushes_submitted = 0;  // kFlush requests handed to the device
  // Odd: a flush is in flight; even: none. Goes up by one at dispatch and by one at completion.
  uint64_t flush_index = 0;
};

struct QueueStats {
  FlushStats flush;
  std::vector<HardwareQueueStats> hardware_queues;
  uint64_t reads = 0, writes = 0, discards = 0;
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t errors = 0;
};

class RequestQueue {
 public:
  // EINVAL: an option out of its range or a device with impossible limits; ENOMEM: not even the smallest depth fits.
  static absl::StatusOr<std::unique_ptr<RequestQueue>> Create(BlockDevice* device, const RequestQueueOptions& options);
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Asynchronous; never waits for a tag (bios queue in submission order per hardware queue, bounded by the submitters).
  // Blocks only while the queue is frozen. Bios larger than the device's max_transfer are split; end_io comes once,
  // after the last child, with the first error. A kFlush bio with no ledger waiter is legal and gets a ticket like any
  // other.
  void Submit(Bio* bio);

  // Submits and waits. Ignores bio->end_io. Returns bio->error. Not to be called from end_io (InCompletion).
  [[nodiscard]] int SubmitAndWait(Bio* bio);
  // One-segment conveniences over SubmitAndWait; `need` (may be null) receives Bio::need.
  [[nodiscard]] int Read(uint64_t offset_bytes, void* data, uint64_t length_bytes);
  [[nodiscard]] int Write(uint64_t offset_bytes, const void* data, uint64_t length_bytes, Ticket* need);

  // True on a thread that runs an end_io of this queue right now: it must not wait for I/O or for locks held across
  // I/O.
  bool InCompletion() const;

  FlushLedger& ledger();
  const DeviceCapabilities& capabilities() const;
  BlockDevice& device();

  // Quiesce: no new dispatch to the device until Unquiesce; submitters are not blocked, bios queue. Nests.
  void Quiesce();
  void Unquiesce();
  // Freeze: new submitters block and everything in flight has ended when this returns. Nests.
  void Freeze();
  void Unfreeze();

  QueueStats Stats() const;

 private:
  friend class HardwareQueue;
  struct Impl;
  explicit RequestQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace elidefs::blockio
