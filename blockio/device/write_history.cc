#include "blockio/device/write_history.h"

#include <algorithm>
#include <utility>

#include "base/mix.h"

namespace elidefs::blockio {
WriteHistory::WriteHistory(std::shared_ptr<const BaseImage> initial_image) : initial_image_(std::move(initial_image)) {}

const DeviceEvent& WriteHistory::WriteSubmitted(uint64_t offset_bytes, std::vector<uint8_t> data, bool fua,
                                                bool zeroes_or_discard) {
  std::vector<uint64_t> hashes;
  for (uint64_t done = 0; done < data.size(); done += kImageSectorBytes) {
    hashes.push_back(HashOfSector(data.data() + done));
  }
  MutexLock lock(mutex_);
  events_.push_back(DeviceEvent{.kind = DeviceEvent::Kind::kWriteSubmitted,
                                .id = ++writes_,
                                .offset_bytes = offset_bytes,
                                .fua = fua,
                                .zeroes_or_discard = zeroes_or_discard,
                                .data = std::move(data),
                                .sector_hashes = std::move(hashes)});
  return events_.back();
}

void WriteHistory::WriteCompleted(uint64_t write) {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kWriteCompleted, .id = write});
}

uint64_t WriteHistory::FlushDispatched(uint64_t first_byte, uint64_t end_byte) {
  MutexLock lock(mutex_);
  events_.push_back(DeviceEvent{.kind = DeviceEvent::Kind::kFlushDispatched,
                                .id = ++flushes_,
                                .offset_bytes = first_byte,
                                .end_bytes = end_byte});
  return flushes_;
}

void WriteHistory::FlushCompleted(uint64_t flush) {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kFlushCompleted, .id = flush});
}

void WriteHistory::CacheLost() {
  Append(DeviceEvent{.kind = DeviceEvent::Kind::kCacheLost});
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

CutCursor::CutCursor(const WriteHistory* history)
    : history_(history), image_(history->initial_image()), durable_write_(history->initial_image()->sectors(), 0) {}

void CutCursor::Restart() {
  index_ = 0;
  image_ = SectorImage(history_->initial_image());
  std::fill(durable_write_.begin(), durable_write_.end(), 0);
  pending_.clear();
  flush_dispatched_.clear();
}

void CutCursor::MoveTo(size_t index) {
  if (index < index_) Restart();
  for (; index_ < index; ++index_) Step(history_->event(index_), index_);
}

void CutCursor::Step(const DeviceEvent& event, size_t index) {
  switch (event.kind) {
    case DeviceEvent::Kind::kWriteSubmitted:
      pending_.push_back({.write = &event, .completed = kNever});
      break;
    case DeviceEvent::Kind::kWriteCompleted: {
      // Numbers ascend in `pending_`.
      const auto found = std::lower_bound(pending_.begin(), pending_.end(), event.id,
                                          [](const Pending& pending, uint64_t id) { return pending.write->id < id; });
      found->completed = index;
      if (found->write->fua) {
        MakeDurable(*found->write);
        pending_.erase(found);
      }
      break;
    }
    case DeviceEvent::Kind::kFlushDispatched:
      flush_dispatched_.push_back(index);
      break;
    case DeviceEvent::Kind::kFlushCompleted: {
      const size_t dispatched = flush_dispatched_[event.id - 1];
      const DeviceEvent& flush = history_->event(dispatched);
      const auto covered = [dispatched, &flush](const Pending& pending) {
        return pending.completed < dispatched && !pending.lost && pending.write->offset_bytes >= flush.offset_bytes &&
               pending.write->offset_bytes < flush.end_bytes;
      };
      for (const Pending& pending : pending_) {
        if (covered(pending)) MakeDurable(*pending.write);
      }
      std::erase_if(pending_, covered);
      break;
    }
    case DeviceEvent::Kind::kCacheLost:
      for (Pending& pending : pending_) pending.lost = pending.lost || pending.completed != kNever;
      break;
    case DeviceEvent::Kind::kMark:
      break;
  }
}

void CutCursor::MakeDurable(const DeviceEvent& write) {
  for (size_t i = 0; i < write.sector_hashes.size(); ++i) {
    const uint64_t sector = write.offset_bytes / kImageSectorBytes + i;
    if (durable_write_[sector] > write.id) continue;
    durable_write_[sector] = write.id;
    image_.Set(sector, write.data.data() + i * kImageSectorBytes, write.sector_hashes[i]);
  }
}

void CutCursor::KeepSectors(const DeviceEvent& write, bool all, uint64_t draw) {
  for (size_t i = 0; i < write.sector_hashes.size(); ++i) {
    const uint64_t sector = write.offset_bytes / kImageSectorBytes + i;
    if (durable_write_[sector] > write.id) continue;
    if (!all && (MixBits(draw + i * kImageSectorBytes) & 1U) == 0) continue;
    image_.Set(sector, write.data.data() + i * kImageSectorBytes, write.sector_hashes[i]);
  }
}

void CutCursor::Keep(VolatileCacheDevice::Cut mode, uint64_t seed) {
  if (mode == VolatileCacheDevice::Cut::kDropAll) return;
  for (const Pending& pending : pending_) {
    // A third each of whole writes lost, whole writes kept, and torn ones: reordering shows best with whole writes.
    const uint64_t draw = MixBits(seed ^ MixBits(pending.write->id));
    const bool random = mode == VolatileCacheDevice::Cut::kRandom;
    if (random && draw % 3 == 0) continue;
    KeepSectors(*pending.write, /*all=*/!random || draw % 3 != 1, draw);
  }
}

void CutCursor::KeepWrites(uint64_t which) {
  for (size_t i = 0; i < pending_.size() && i < 64; ++i) {
    if ((which >> i & 1U) != 0) KeepSectors(*pending_[i].write, /*all=*/true, 0);
  }
}

}  // namespace elidefs::blockio
