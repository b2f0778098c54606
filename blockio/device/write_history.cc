#include "blockio/device/write_history.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace elidefs::blockio {
namespace {

constexpr uint64_t kSectorBytes = 512;  // the unit of tearing

// SplitMix64's output function: decisions must depend on the seed, the write and the sector alone.
uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

}  // namespace

WriteHistory::WriteHistory(std::vector<uint8_t> initial_image)
    : initial_image_(std::move(initial_image)),
      durable_image_(initial_image_),
      durable_write_(initial_image_.size() / kSectorBytes, 0) {}

uint64_t WriteHistory::WriteSubmitted(uint64_t offset_bytes, std::vector<uint8_t> data, bool fua,
                                      bool zeroes_or_discard) {
  MutexLock lock(mutex_);
  events_.push_back(DeviceEvent{.kind = DeviceEvent::Kind::kWriteSubmitted,
                                .id = ++writes_,
                                .offset_bytes = offset_bytes,
                                .fua = fua,
                                .zeroes_or_discard = zeroes_or_discard,
                                .data = std::move(data)});
  return writes_;
}

void WriteHistory::WriteCompleted(uint64_t write) {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kWriteCompleted, .id = write});
}

uint64_t WriteHistory::FlushDispatched() {
  MutexLock lock(mutex_);
  events_.push_back(DeviceEvent{.kind = DeviceEvent::Kind::kFlushDispatched, .id = ++flushes_});
  return flushes_;
}

void WriteHistory::FlushCompleted(uint64_t flush) {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kFlushCompleted, .id = flush});
}

void WriteHistory::Mark(uint64_t number) {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kMark, .id = number});
}

void WriteHistory::Append(DeviceEvent event) {
  MutexLock lock(mutex_);
  events_.push_back(std::move(event));
}

size_t WriteHistory::event_count() const {
  MutexLock lock(mutex_);
  return events_.size();
}

const DeviceEvent& WriteHistory::event(size_t index) const {
  MutexLock lock(mutex_);
  return events_.at(index);
}

void WriteHistory::ImageAfterCut(size_t index, VolatileCacheDevice::Cut mode, uint64_t seed,
                                 std::vector<uint8_t>* image) const {
  MutexLock lock(mutex_);
  MoveCursorTo(std::min(index, events_.size()));
  image->assign(durable_image_.begin(), durable_image_.end());
  if (mode == VolatileCacheDevice::Cut::kDropAll) return;
  for (const Pending& write : pending_) KeepSome(write, mode, seed, image);
}

void WriteHistory::MoveCursorTo(size_t index) const {
  if (index < cursor_) {
    cursor_ = 0;
    durable_image_ = initial_image_;
    std::fill(durable_write_.begin(), durable_write_.end(), 0);
    pending_.clear();
    flush_dispatched_.clear();
  }
  for (; cursor_ < index; ++cursor_) Step(events_[cursor_], cursor_);
}

void WriteHistory::Step(const DeviceEvent& event, size_t index) const {
  switch (event.kind) {
    case DeviceEvent::Kind::kWriteSubmitted:
      pending_.push_back(Pending{.id = event.id, .submitted = index, .completed = kNever});
      break;
    case DeviceEvent::Kind::kWriteCompleted: {
      // Numbers ascend in `pending_`.
      const auto write = std::lower_bound(pending_.begin(), pending_.end(), event.id,
                                          [](const Pending& pending, uint64_t id) { return pending.id < id; });
      write->completed = index;
      if (events_[write->submitted].fua) {
        MakeDurable(*write);
        pending_.erase(write);
      }
      break;
    }
    case DeviceEvent::Kind::kFlushDispatched:
      flush_dispatched_.push_back(index);
      break;
    case DeviceEvent::Kind::kFlushCompleted: {
      const size_t dispatched = flush_dispatched_[event.id - 1];
      const auto covered = [dispatched](const Pending& write) { return write.completed < dispatched; };
      for (const Pending& write : pending_) {
        if (covered(write)) MakeDurable(write);
      }
      std::erase_if(pending_, covered);
      break;
    }
    case DeviceEvent::Kind::kMark:
      break;
  }
}

void WriteHistory::MakeDurable(const Pending& write) const {
  const DeviceEvent& event = events_[write.submitted];
  for (uint64_t done = 0; done < event.data.size(); done += kSectorBytes) {
    const uint64_t at = event.offset_bytes + done;
    uint64_t& holds = durable_write_[at / kSectorBytes];
    if (holds > write.id) continue;
    holds = write.id;
    std::memcpy(durable_image_.data() + at, event.data.data() + done, kSectorBytes);
  }
}

void WriteHistory::KeepSome(const Pending& write, VolatileCacheDevice::Cut mode, uint64_t seed,
                            std::vector<uint8_t>* image) const {
  const DeviceEvent& event = events_[write.submitted];
  // A third each of whole writes lost, whole writes kept, and torn ones: reordering shows best with whole writes.
  const uint64_t draw = Mix(seed ^ Mix(write.id));
  const bool random = mode == VolatileCacheDevice::Cut::kRandom;
  if (random && draw % 3 == 0) return;
  const bool torn = random && draw % 3 == 1;
  for (uint64_t done = 0; done < event.data.size(); done += kSectorBytes) {
    const uint64_t at = event.offset_bytes + done;
    if (durable_write_[at / kSectorBytes] > write.id) continue;
    if (torn && (Mix(draw + done) & 1U) == 0) continue;
    std::memcpy(image->data() + at, event.data.data() + done, kSectorBytes);
  }
}

}  // namespace elidefs::blockio
