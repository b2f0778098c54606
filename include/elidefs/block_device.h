// BlockDevice: what the block layer drives. One object is one leaf device with one volatile write cache.
//
// Purpose: the seam between the block layer (tags, queues, flush sequencing, epochs) and whatever stores the bytes:
// an image file or block device on io_uring, memory, or a stacked test device. A user may bring one.
// Ownership: the RequestQueue that is built over a device borrows it; the device outlives the queue.
// Threads: `DeviceQueue::Submit` is called by one thread at a time per queue, by several threads for several queues.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace elidefs {

enum class Operation : uint8_t { kRead, kWrite, kFlush, kDiscard, kWriteZeroes };

// One operation as the device sees it. The block layer owns it and keeps it alive until `complete` was called.
struct DeviceRequest {
  Operation operation = Operation::kRead;
  bool fua = false;  // only ever set when DeviceCapabilities::native_fua
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;        // sum of the segments for reads and writes; 0 for a flush
  const iovec* segments = nullptr;  // each aligned to memory_alignment_bytes in address and length
  uint32_t segment_count = 0;

  // Called exactly once, from any thread, possibly before Submit returns. `error` is 0 or a positive errno. A short
  // transfer is the device's to finish or to report as EIO. After the call the device touches the request no more.
  void (*complete)(DeviceRequest* request, int error) = nullptr;

  // For the device's own use between Submit and complete (an iovec being advanced, a sequence number, a parent).
  uint64_t device_private[4] = {};
};

struct DeviceCapabilities {
  uint64_t size_bytes = 0;
  uint32_t logical_block_bytes = 512;  // smallest addressable unit; offsets and lengths are multiples of it
  uint32_t memory_alignment_bytes = 512;
  uint32_t max_transfer_bytes = 1U << 20U;
  uint32_t max_segments = 128;
  uint32_t max_queues = 1;           // how many DeviceQueues may exist at once
  bool volatile_write_cache = true;  // false: a completed write is durable (rule E9)
  bool native_fua = false;           // DeviceRequest::fua is honoured in hardware (rule E6)
  bool discard = false;
  bool write_zeroes = false;
  bool read_only = false;
};

// One submission channel of a device (an io_uring, an NVMe queue pair).
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;  // all submitted requests have completed
  // Starts `request`. Never blocks for the device and never fails: errors arrive through `complete`.
  virtual void Submit(DeviceRequest* request) = 0;
  // Completes whatever is ready on the calling thread and returns how many requests it completed; 0 when the queue
  // completes on its own thread only. Safe from any thread.
  virtual uint32_t Poll() { return 0; }
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  // As found when the device was opened; constant for the life of the object.
  virtual const DeviceCapabilities& capabilities() const = 0;
  // Whether completed writes may sit in a volatile cache at this moment. Asked at an interval while the answer was no
  // (rule E8): once it is yes, everything counts as unflushed. May read a file, must not wait for the device.
  virtual bool HasVolatileCache() { return capabilities().volatile_write_cache; }
  // For messages: the path or a description.
  virtual const std::string& name() const = 0;
  // `depth` is the most requests that will be in flight at once on this queue.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) = 0;
};

struct FileDeviceOptions {
  bool read_only = false;
  // Open with O_EXCL (block devices) and take a lock (flock LOCK_EX on the file; LOCK_SH when read_only).
  bool exclusive = true;
  // Refuse a source whose data lives on a FUSE mount of type fuse.elidefs, directly or through a loop device.
  bool refuse_on_elidefs = true;
};

// Opens an image file or a block device with O_DIRECT, driven by io_uring. Write cache and FUA capability come from
// /sys/block/*/queue/{write_cache,fua}; an image file always counts as volatile and without FUA. Errors name the path
// and the remedy: NotFound, PermissionDenied, EBUSY (in use or mounted), EINVAL (neither file nor block device,
// O_DIRECT unsupported), ELOOP (on an elidefs mount).
absl::StatusOr<std::unique_ptr<BlockDevice>> OpenFileDevice(const std::string& path, const FileDeviceOptions& options);

}  // namespace elidefs
