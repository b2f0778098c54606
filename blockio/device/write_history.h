// WriteHistory: what a device with a volatile cache was asked and answered; CutCursor: the images that a power cut
// could leave of it.
//
// The model. A write is durable from the completion of the first flush that was dispatched after the write's own
// completion, or from its own completion if it was FUA; never if the cache was lost before that. At a cut, of every
// other write submitted before it, each 512-byte sector may be on the medium or not. Where writes overlap, the one
// submitted later lies on top, and a durable write is never hidden by one submitted earlier.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "blockio/device/sector_image.h"
#include "blockio/device/test_devices.h"

namespace elidefs::blockio {

// Threads: thread-safe; events are only ever appended, and a reference to one stays valid.
class WriteHistory {
 public:
  explicit WriteHistory(std::shared_ptr<const BaseImage> initial_image);

  // Numbers of writes and flushes count from 1 each.
  const DeviceEvent& WriteSubmitted(uint64_t offset_bytes, std::vector<uint8_t> data, bool fua, bool zeroes_or_discard);
  void WriteCompleted(uint64_t write);
  // Covers writes in [first, end) only.
  uint64_t FlushDispatched(uint64_t first_byte, uint64_t end_byte);
  void FlushCompleted(uint64_t flush);
  void CacheLost();
  void Mark(uint64_t number);

  const std::shared_ptr<const BaseImage>& initial_image() const { return initial_image_; }
  size_t event_count() const ABSL_LOCKS_EXCLUDED(mutex_);
  const DeviceEvent& event(size_t index) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Append(DeviceEvent event) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const BaseImage> initial_image_;
  mutable Mutex mutex_;
  std::deque<DeviceEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t flushes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Goes forward through a history. Cost: one pass over it in all, plus the unflushed sectors per image. Threads: one
// thread; several cursors may read one history.
class CutCursor {
 public:
  // A submitted write that is not durable at the cursor.
  struct Pending {
    const DeviceEvent* write;
    size_t completed;   // index of the event, or kNever
    bool lost = false;  // no flush covers it any more
  };
  static constexpr size_t kNever = ~size_t{0};

  // Borrows the history.
  explicit CutCursor(const WriteHistory* history);

  // To just before event `index`; going back starts from the beginning.
  void MoveTo(size_t index);
  size_t index() const { return index_; }
  // In order of submission.
  const std::vector<Pending>& pending() const { return pending_; }
  // What is durable for certain. Changes made to it are the caller's to roll back before the cursor moves on.
  SectorImage& image() { return image_; }

  // Lays what survives a cut here over the image. The same seed gives the same bytes.
  void Keep(VolatileCacheDevice::Cut mode, uint64_t seed);
  // The whole of those pending writes whose number in `pending` has its bit set; there are at most 64.
  void KeepWrites(uint64_t which);

 private:
  void Restart();
  void Step(const DeviceEvent& event, size_t index);
  // Puts the write into the durable image, except where a later one is durable already.
  void MakeDurable(const DeviceEvent& write);
  // `draw`: which sectors, unless all of them.
  void KeepSectors(const DeviceEvent& write, bool all, uint64_t draw);

  const WriteHistory* const history_;
  SectorImage image_;
  size_t index_ = 0;
  std::vector<uint64_t> durable_write_;   // per sector: which write it holds, 0: none
  std::vector<Pending> pending_;          // in order of submission
  std::vector<size_t> flush_dispatched_;  // by flush number - 1: index of the event
};

}  // namespace elidefs::blockio
