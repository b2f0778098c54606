// Devices for tests, benchmarks and the crash laboratory. All of them are thread-safe BlockDevices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

// Bytes in memory; completes inside Submit. No volatile cache unless `volatile_cache` (then flushes are accepted and
// counted but nothing is ever lost).
struct MemoryDeviceOptions {
  uint64_t size_bytes = 0;
  bool volatile_cache = false;
  bool native_fua = false;
  uint32_t max_queues = 4;
};
class MemoryDevice : public BlockDevice {
 public:
  static std::unique_ptr<MemoryDevice> Create(const MemoryDeviceOptions& options);
  // Takes the bytes over; the size must be a multiple of 512.
  static std::unique_ptr<MemoryDevice> FromBytes(std::vector<uint8_t> bytes, const MemoryDeviceOptions& options);
  // The content. Only while nothing is in flight.
  virtual std::vector<uint8_t>& bytes() = 0;
  virtual uint64_t flushes() const = 0;
};

// Keeps every write that no flush has covered apart from the durable image, and records the history of the device so
// that a power cut can be simulated at every point after the run. Contract simulated (docs/flush_elision.md): a flush
// covers exactly the writes that completed before it was dispatched; a FUA write is durable at its completion; at a cut
// every other write submitted so far may be kept, dropped, reordered against others, or torn at 512-byte sectors.
struct DeviceEvent {
  enum class Kind : uint8_t { kWriteSubmitted, kWriteCompleted, kFlushDispatched, kFlushCompleted, kCacheLost, kMark };
  Kind kind = Kind::kMark;
  uint64_t id = 0;            // write or flush number; for kMark the caller's number
  uint64_t offset_bytes = 0;  // writes (submitted); flushes (dispatched): only writes in [offset, end) are covered
  uint64_t end_bytes = 0;     // flushes (dispatched)
  bool fua = false;
  bool zeroes_or_discard = false;       // `data` holds what the range reads as afterwards
  std::vector<uint8_t> data;            // kWriteSubmitted
  std::vector<uint64_t> sector_hashes;  // of `data` (HashOfSector)
};
class BaseImage;
class WriteHistory;
class VolatileCacheDevice : public BlockDevice {
 public:
  struct Options {
    bool native_fua = false;
    bool discard = false;
    uint32_t max_queues = 2;
    // 0: completes inside Submit. Otherwise a completion thread completes requests in a random order drawn from this
    // seed, so that writes are in flight while others are acknowledged and several queues complete out of order.
    uint64_t reorder_seed = 0;
  };
  static std::unique_ptr<VolatileCacheDevice> Create(std::vector<uint8_t> initial_image, const Options& options);
  // Many devices may begin as one image.
  static std::unique_ptr<VolatileCacheDevice> Create(std::shared_ptr<const BaseImage> initial_image,
                                                     const Options& options);

  // Adds a kMark event in the history (an acknowledgement given to the user of the filesystem).
  virtual void Mark(uint64_t number) = 0;
  // The cache is gone, as after a reset: what had completed and was not durable is covered by no later flush. Reads go
  // on as if nothing had happened; what is on the medium shows after a cut.
  virtual void LoseCache() = 0;
  // Events so far; stable once nothing is in flight.
  virtual size_t event_count() const = 0;
  virtual const DeviceEvent& event(size_t index) const = 0;
  // A part of the device as one with a cache of its own: a flush there covers no write elsewhere, and the other way
  // round. Parts do not overlap, and the device outlives them.
  virtual std::unique_ptr<BlockDevice> Leaf(uint64_t first_byte, uint64_t size_bytes) = 0;
  // For a CutCursor (write_history.h), which is the quick way to many images.
  virtual const WriteHistory& history() const = 0;
  // The image after a power cut just before event `index` (index == event_count(): after everything). The same seed
  // gives the same bytes. `kDropAll` loses everything a cut may lose, `kKeepAll` nothing, `kRandom` decides
  // per sector.
  enum class Cut : uint8_t { kDropAll, kKeepAll, kRandom };
  virtual std::vector<uint8_t> ImageAfterCut(size_t index, Cut mode, uint64_t seed) const = 0;
  // The same into a buffer that is used again. Indices in ascending order cost one pass over the history in all.
  virtual void ImageAfterCutInto(size_t index, Cut mode, uint64_t seed, std::vector<uint8_t>* image) const = 0;
};

// A stackable device that injects errors and delays into another one.
class FaultDevice : public BlockDevice {
 public:
  // Decides the fate of a request before it reaches the device below; called from any thread.
  struct Verdict {
    int error = 0;             // positive errno: the request fails with it
    bool apply_first = false;  // with an error: the device below executes it all the same (a torn or late failure)
    uint32_t torn_bytes = 0;   // with an error on a write: only this many leading bytes reach the device below
    uint64_t delay_us = 0;
  };
  using Plan = std::function<Verdict(const DeviceRequest& request)>;
  // Borrows `below`.
  static std::unique_ptr<FaultDevice> Create(BlockDevice* below, Plan plan);
  virtual void SetPlan(Plan plan) = 0;
};

}  // namespace elidefs::blockio
