// WriteHistory: what a device with a volatile cache was asked and answered, and the images a power cut could leave.
//
// The model. A write is durable from the completion of the first flush that was dispatched after the write's own
// completion, or from its own completion if it was FUA. At a cut, of every other write submitted before it, each
// 512-byte sector may be on the medium or not. Where writes overlap, the one submitted later lies on top, and a durable
// write is never hidden by one submitted earlier. Cost: one durable image is carried forward from event to event, so
// asking for every index in ascending order costs one pass over the history plus one copy of the image per answer.
// Going back restarts from the initial image. Threads: thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/mutex.h"
#include "blockio/device/test_devices.h"

namespace elidefs::blockio {

class WriteHistory {
 public:
  explicit WriteHistory(std::vector<uint8_t> initial_image);

  // Recording. Numbers of writes and flushes count from 1 each.
  uint64_t WriteSubmitted(uint64_t offset_bytes, std::vector<uint8_t> data, bool fua, bool zeroes_or_discard);
  void WriteCompleted(uint64_t write);
  uint64_t FlushDispatched();
  void FlushCompleted(uint64_t flush);
  void Mark(uint64_t number);

  size_t event_count() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The reference stays valid; events are only ever appended.
  const DeviceEvent& event(size_t index) const ABSL_LOCKS_EXCLUDED(mutex_);
  void ImageAfterCut(size_t index, VolatileCacheDevice::Cut mode, uint64_t seed, std::vector<uint8_t>* image) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A submitted write that is not durable yet at the cursor.
  struct Pending {
    uint64_t id;
    size_t submitted;  // index of its event
    size_t completed;  // index, or kNever
  };
  static constexpr size_t kNever = ~size_t{0};

  void Append(DeviceEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  void MoveCursorTo(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Step(const DeviceEvent& event, size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the write into the durable image, except where a later one is durable already.
  void MakeDurable(const Pending& write) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepSome(const Pending& write, VolatileCacheDevice::Cut mode, uint64_t seed, std::vector<uint8_t>* image) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::deque<DeviceEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t flushes_ ABSL_GUARDED_BY(mutex_) = 0;

  // The state just before event `cursor_`.
  const std::vector<uint8_t> initial_image_;
  mutable size_t cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::vector<uint8_t> durable_image_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<uint64_t> durable_write_ ABSL_GUARDED_BY(mutex_);   // per sector: which write it holds, 0: none
  mutable std::vector<Pending> pending_ ABSL_GUARDED_BY(mutex_);          // in order of submission
  mutable std::vector<size_t> flush_dispatched_ ABSL_GUARDED_BY(mutex_);  // by flush number - 1: index of the event
};

}  // namespace elidefs::blockio
