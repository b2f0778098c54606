// A stackable device that keeps a book of every request that passes: what is lost, answered twice, sent twice while it
// is in flight, or sent while its queue's dispatch is stopped is counted as a fault.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

class CheckerDevice final : public BlockDevice {
 public:
  // Borrows `below`.
  explicit CheckerDevice(BlockDevice* below) : below_(below) {}

  const DeviceCapabilities& capabilities() const override { return below_->capabilities(); }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override {
    absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = below_->CreateQueue(index, depth);
    if (!queue.ok()) return queue.status();
    return std::make_unique<Queue>(this, *std::move(queue), depth);
  }

  // What follows is to be true of a correct block layer at any time: no faults; and nothing in flight once it is
  // frozen.
  uint64_t faults() const { return faults_.load(); }
  uint64_t submitted() const { return submitted_.load(); }
  uint64_t in_flight() const { return submitted_.load() - completed_.load(); }
  // Between the calls nothing may be sent.
  void DispatchIsStopped(bool stopped) { stopped_.store(stopped); }

 private:
  class Queue final : public DeviceQueue {
   public:
    Queue(CheckerDevice* device, std::unique_ptr<DeviceQueue> below, uint32_t depth)
        : device_(device), depth_(depth), below_(std::move(below)) {}
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    ~Queue() override {
      below_.reset();
      MutexLock lock(mutex_);
      device_->faults_.fetch_add(book_.size());  // lost
    }

    void Submit(DeviceRequest* request) override {
      device_->submitted_.fetch_add(1);
      if (device_->stopped_.load()) device_->faults_.fetch_add(1);
      if (submitting_.exchange(true)) device_->faults_.fetch_add(1);  // one thread at a time
      {
        MutexLock lock(mutex_);
        const bool fresh = book_.emplace(request, request->complete).second;
        if (!fresh || book_.size() > depth_) device_->faults_.fetch_add(1);
      }
      request->device_private[3] = std::bit_cast<uint64_t>(this);
      request->complete = [](DeviceRequest* done, int error) {
        std::bit_cast<Queue*>(done->device_private[3])->Complete(done, error);
      };
      below_->Submit(request);
      submitting_.store(false);
    }

   private:
    using CompleteFunction = void (*)(DeviceRequest* request, int error);
    void Complete(DeviceRequest* request, int error) {
      CompleteFunction complete = nullptr;
      {
        MutexLock lock(mutex_);
        const auto found = book_.find(request);
        if (found == book_.end()) {
          device_->faults_.fetch_add(1);  // twice
          return;
        }
        complete = found->second;
        book_.erase(found);
      }
      device_->completed_.fetch_add(1);
      request->complete = complete;
      complete(request, error);
    }

    CheckerDevice* const device_;
    const uint32_t depth_;
    std::unique_ptr<DeviceQueue> below_;
    std::atomic<bool> submitting_{false};
    Mutex mutex_;
    std::unordered_map<DeviceRequest*, CompleteFunction> book_ ABSL_GUARDED_BY(mutex_);
  };

  const std::string name_ = "checker device";
  BlockDevice* const below_;
  std::atomic<uint64_t> faults_{0};
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace elidefs::blockio
