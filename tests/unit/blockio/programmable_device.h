// A device whose completions the test gives by hand, in any order.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

class ProgrammableDevice final : public BlockDevice {
 public:
  ProgrammableDevice() {
    capabilities_.size_bytes = 64U << 20U;
    capabilities_.max_queues = 8;
    capabilities_.discard = true;
    capabilities_.write_zeroes = true;
  }
  DeviceCapabilities& mutable_capabilities() { return capabilities_; }
  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t /*index*/, uint32_t depth) override {
    depths.push_back(depth);
    if (depth > largest_depth) return ErrnoError(ENOMEM, "programmable: no memory");
    return std::make_unique<Queue>(this);
  }

  // "R", "W", "F" (flush), "D", "Z", with "+" behind for FUA; in order of submission, completed ones included.
  std::string log() {
    MutexLock lock(mutex_);
    return log_;
  }
  size_t held() {
    MutexLock lock(mutex_);
    return held_.size();
  }
  DeviceRequest Peek(size_t index) {
    MutexLock lock(mutex_);
    return *held_.at(index);
  }
  // Completes the held request at `index` (0: oldest).
  void Complete(size_t index, int error = 0) {
    DeviceRequest* request = nullptr;
    {
      MutexLock lock(mutex_);
      request = held_.at(index);
      held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
    }
    request->complete(request, error);
  }
  void CompleteAll() {
    while (held() > 0) Complete(0);
  }
  bool WaitForHeld(size_t count) {
    for (int i = 0; i < 5000 && held() < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return held() >= count;
  }

  std::vector<uint32_t> depths;
  uint32_t largest_depth = UINT32_MAX;  // beyond it there is no memory
  std::atomic<bool> overlapping_submits{false};

 private:
  class Queue final : public DeviceQueue {
   public:
    explicit Queue(ProgrammableDevice* device) : device_(device) {}
    void Submit(DeviceRequest* request) override {
      if (inside_.exchange(true)) device_->overlapping_submits = true;
      {
        MutexLock lock(device_->mutex_);
        device_->log_ += "RWFDZ"[static_cast<size_t>(request->operation)];
        if (request->fua) device_->log_ += '+';
        device_->held_.push_back(request);
      }
      inside_ = false;
    }

   private:
    ProgrammableDevice* const device_;
    std::atomic<bool> inside_{false};
  };

  const std::string name_ = "programmable device";
  DeviceCapabilities capabilities_;
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceRequest*> held_ ABSL_GUARDED_BY(mutex_);
};

static_assert(static_cast<int>(Operation::kRead) == 0 && static_cast<int>(Operation::kWriteZeroes) == 4);

}  // namespace elidefs::blockio
