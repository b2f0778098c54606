// The device around WriteHistory. The image that reads see holds each write from the moment of its submission; a read
// sees it as it is when the read executes, which is just before it completes.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "blockio/device/test_devices.h"
#include "blockio/device/write_history.h"

namespace elidefs::blockio {
namespace {

// How long a completion may be held back so that others can overtake it.
constexpr auto kHoldBack = std::chrono::microseconds(50);
constexpr size_t kMaxBatch = 6;

class VolatileCacheDeviceImpl final : public VolatileCacheDevice {
 public:
  VolatileCacheDeviceImpl(std::shared_ptr<const BaseImage> initial_image, const Options& options);

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;
  void Mark(uint64_t number) override { history_.Mark(number); }
  void LoseCache() override { history_.CacheLost(); }
  std::unique_ptr<BlockDevice> Leaf(uint64_t first_byte, uint64_t size_bytes) override;
  size_t event_count() const override { return history_.event_count(); }
  const DeviceEvent& event(size_t index) const override { return history_.event(index); }
  const WriteHistory& history() const override { return history_; }
  std::vector<uint8_t> ImageAfterCut(size_t index, Cut mode, uint64_t seed) const override {
    std::vector<uint8_t> image;
    ImageAfterCutInto(index, mode, seed, &image);
    return image;
  }
  void ImageAfterCutInto(size_t index, Cut mode, uint64_t seed, std::vector<uint8_t>* image) const override;

  // Records the request's arrival. 0, or the errno it completes with.
  int Begin(DeviceRequest* request);
  // Records the end and reports it.
  void End(DeviceRequest* request, int error);

 private:
  const std::string name_ = "volatile cache device";
  const uint64_t seed_;
  DeviceCapabilities capabilities_;
  Mutex mutex_;
  SectorImage visible_ ABSL_GUARDED_BY(mutex_);
  WriteHistory history_;
  mutable Mutex cursor_mutex_;
  mutable CutCursor cursor_ ABSL_GUARDED_BY(cursor_mutex_);
};

class LeafDevice final : public BlockDevice {
 public:
  LeafDevice(VolatileCacheDeviceImpl* whole, uint64_t first_byte, uint64_t size_bytes)
      : whole_(whole), first_byte_(first_byte), capabilities_(whole->capabilities()) {
    capabilities_.size_bytes = size_bytes;
  }
  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;

  uint64_t first_byte() const { return first_byte_; }

 private:
  const std::string name_ = "part of a volatile cache device";
  VolatileCacheDeviceImpl* const whole_;
  const uint64_t first_byte_;
  DeviceCapabilities capabilities_;
};

class LeafQueue final : public DeviceQueue {
 public:
  LeafQueue(const LeafDevice* leaf, std::unique_ptr<DeviceQueue> whole) : leaf_(leaf), whole_(std::move(whole)) {}
  void Submit(DeviceRequest* request) override {
    const uint64_t size_bytes = leaf_->capabilities().size_bytes;
    if (request->offset_bytes > size_bytes || request->length_bytes > size_bytes - request->offset_bytes) {
      request->complete(request, EIO);
      return;
    }
    auto inner = std::make_unique<Inner>();
    static_cast<DeviceRequest&>(*inner) = *request;
    inner->outer = request;
    inner->offset_bytes += leaf_->first_byte();
    if (request->operation == Operation::kFlush) inner->length_bytes = size_bytes;
    inner->complete = [](DeviceRequest* done, int error) {
      const std::unique_ptr<Inner> owned(static_cast<Inner*>(done));
      owned->outer->complete(owned->outer, error);
    };
    whole_->Submit(inner.release());
  }

 private:
  struct Inner : DeviceRequest {
    DeviceRequest* outer = nullptr;
  };
  const LeafDevice* const leaf_;
  const std::unique_ptr<DeviceQueue> whole_;
};

absl::StatusOr<std::unique_ptr<DeviceQueue>> LeafDevice::CreateQueue(uint32_t index, uint32_t depth) {
  absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = whole_->CreateQueue(index, depth);
  if (!queue.ok()) return queue.status();
  return std::make_unique<LeafQueue>(this, *std::move(queue));
}

std::unique_ptr<BlockDevice> VolatileCacheDeviceImpl::Leaf(uint64_t first_byte, uint64_t size_bytes) {
  return std::make_unique<LeafDevice>(this, first_byte, size_bytes);
}

// Completes inside Submit.
class ImmediateQueue final : public DeviceQueue {
 public:
  explicit ImmediateQueue(VolatileCacheDeviceImpl* device) : device_(device) {}
  void Submit(DeviceRequest* request) override { device_->End(request, device_->Begin(request)); }

 private:
  VolatileCacheDeviceImpl* const device_;
};

// Completes on its own thread in a random order.
class ReorderQueue final : public DeviceQueue {
 public:
  ReorderQueue(VolatileCacheDeviceImpl* device, uint64_t seed)
      : device_(device), random_(seed), thread_("elidefs-cache", [this] { Run(); }) {}
  ~ReorderQueue() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    thread_.Join();
  }
  void Submit(DeviceRequest* request) override {
    const int error = device_->Begin(request);
    MutexLock lock(mutex_);
    pending_.emplace_back(request, error);
    changed_.NotifyAll();
  }

 private:
  void Run();

  VolatileCacheDeviceImpl* const device_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<DeviceRequest*, int>> pending_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::mt19937_64 random_;  // the thread's
  Thread thread_;
};

void ReorderQueue::Run() {
  mutex_.Lock();
  while (true) {
    while (pending_.empty() && !stopping_) changed_.Wait(mutex_);
    if (pending_.empty()) break;
    const size_t enough = 1 + random_() % kMaxBatch;
    if (pending_.size() < enough && !stopping_) changed_.WaitFor(mutex_, kHoldBack);
    const size_t batch = 1 + random_() % pending_.size();
    for (size_t i = 0; i < batch && !pending_.empty(); ++i) {
      std::swap(pending_[random_() % pending_.size()], pending_.back());
      const auto [request, error] = pending_.back();
      pending_.pop_back();
      mutex_.Unlock();
      device_->End(request, error);
      mutex_.Lock();
    }
  }
  mutex_.Unlock();
}

VolatileCacheDeviceImpl::VolatileCacheDeviceImpl(std::shared_ptr<const BaseImage> initial_image, const Options& options)
    : seed_(options.reorder_seed), visible_(initial_image), history_(std::move(initial_image)), cursor_(&history_) {
  capabilities_.size_bytes = visible_.size_bytes();
  capabilities_.max_queues = options.max_queues;
  capabilities_.volatile_write_cache = true;
  capabilities_.native_fua = options.native_fua;
  capabilities_.discard = options.discard;
  capabilities_.write_zeroes = true;
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> VolatileCacheDeviceImpl::CreateQueue(uint32_t index, uint32_t /*depth*/) {
  if (seed_ == 0) return std::make_unique<ImmediateQueue>(this);
  return std::make_unique<ReorderQueue>(this, seed_ * 31 + index);
}

int VolatileCacheDeviceImpl::Begin(DeviceRequest* request) {
  if (request->operation == Operation::kFlush) {
    // One of a part says which.
    const uint64_t end = request->length_bytes == 0 ? UINT64_MAX : request->offset_bytes + request->length_bytes;
    request->device_private[0] = history_.FlushDispatched(request->offset_bytes, end);
    return 0;
  }
  MutexLock lock(mutex_);
  const uint64_t size_bytes = capabilities_.size_bytes;
  if (request->offset_bytes > size_bytes || request->length_bytes > size_bytes - request->offset_bytes) return EIO;
  if (request->operation == Operation::kRead) return 0;
  std::vector<uint8_t> data(request->length_bytes, 0);
  uint64_t done = 0;
  for (uint32_t i = 0; i < request->segment_count; ++i) {
    std::memcpy(data.data() + done, request->segments[i].iov_base, request->segments[i].iov_len);
    done += request->segments[i].iov_len;
  }
  // Under the same lock as the image, so that what reads see follows the order of the history.
  const DeviceEvent& event =
      history_.WriteSubmitted(request->offset_bytes, std::move(data), request->fua && capabilities_.native_fua,
                              request->operation != Operation::kWrite);
  for (size_t i = 0; i < event.sector_hashes.size(); ++i) {
    visible_.Set(event.offset_bytes / kImageSectorBytes + i, event.data.data() + i * kImageSectorBytes,
                 event.sector_hashes[i]);
  }
  request->device_private[0] = event.id;
  return 0;
}

void VolatileCacheDeviceImpl::End(DeviceRequest* request, int error) {
  if (error == 0 && request->operation == Operation::kFlush) {
    history_.FlushCompleted(request->device_private[0]);
  } else if (error == 0 && request->operation == Operation::kRead) {
    MutexLock lock(mutex_);
    uint64_t at = request->offset_bytes;
    for (uint32_t i = 0; i < request->segment_count; ++i) {
      visible_.Read(at, static_cast<uint8_t*>(request->segments[i].iov_base), request->segments[i].iov_len);
      at += request->segments[i].iov_len;
    }
  } else if (error == 0) {
    history_.WriteCompleted(request->device_private[0]);
  }
  request->complete(request, error);
}

void VolatileCacheDeviceImpl::ImageAfterCutInto(size_t index, Cut mode, uint64_t seed,
                                                std::vector<uint8_t>* image) const {
  MutexLock lock(cursor_mutex_);
  cursor_.MoveTo(std::min(index, history_.event_count()));
  cursor_.image().Mark();
  cursor_.Keep(mode, seed);
  image->resize(capabilities_.size_bytes);
  cursor_.image().Read(0, image->data(), image->size());
  cursor_.image().Rollback();
}

}  // namespace

std::unique_ptr<VolatileCacheDevice> VolatileCacheDevice::Create(std::vector<uint8_t> initial_image,
                                                                 const Options& options) {
  return Create(std::make_shared<const BaseImage>(std::move(initial_image)), options);
}

std::unique_ptr<VolatileCacheDevice> VolatileCacheDevice::Create(std::shared_ptr<const BaseImage> initial_image,
                                                                 const Options& options) {
  return std::make_unique<VolatileCacheDeviceImpl>(std::move(initial_image), options);
}

}  // namespace elidefs::blockio
