#include "blockio/device/null_device.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace elidefs::blockio {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch()).count();
}

// Requests of one latency, linked through device_private: the oldest is due first.
struct DueList {
  DeviceRequest* head = nullptr;
  DeviceRequest* tail = nullptr;

  static DeviceRequest* Next(const DeviceRequest* request) {
    return std::bit_cast<DeviceRequest*>(request->device_private[0]);
  }
  static int64_t DueNs(const DeviceRequest* request) { return static_cast<int64_t>(request->device_private[1]); }

  void PushBack(DeviceRequest* request, int64_t due_ns) {
    request->device_private[0] = 0;
    request->device_private[1] = static_cast<uint64_t>(due_ns);
    if (head == nullptr) {
      head = request;
    } else {
      tail->device_private[0] = std::bit_cast<uint64_t>(request);
    }
    tail = request;
  }
  DeviceRequest* PopFront() {
    DeviceRequest* request = head;
    head = Next(request);
    return request;
  }
};

class NullQueue : public DeviceQueue {
 public:
  explicit NullQueue(std::atomic<uint64_t>* flushes) : flushes_(flushes) {}
  void Submit(DeviceRequest* request) override { Complete(request); }

 protected:
  void Complete(DeviceRequest* request) {
    if (request->operation == Operation::kFlush) flushes_->fetch_add(1, std::memory_order_relaxed);
    request->complete(request, 0);
  }

 private:
  std::atomic<uint64_t>* const flushes_;
};

class DelayedNullQueue final : public NullQueue {
 public:
  DelayedNullQueue(std::atomic<uint64_t>* flushes, const NullDeviceOptions& options)
      : NullQueue(flushes),
        latency_ns_{static_cast<int64_t>(options.latency_us) * 1000,
                    static_cast<int64_t>(options.flush_latency_us) * 1000},
        thread_("elidefs-null", [this] { CompleteWhenDue(); }) {}
  DelayedNullQueue(const DelayedNullQueue&) = delete;
  DelayedNullQueue& operator=(const DelayedNullQueue&) = delete;
  ~DelayedNullQueue() override {
    {
      MutexLock lock(mutex_);
      ends_ = true;
      changed_.NotifyAll();
    }
    thread_.Join();
  }

  void Submit(DeviceRequest* request) override {
    const size_t list = request->operation == Operation::kFlush ? 1 : 0;
    const int64_t due_ns = NowNs() + latency_ns_[list];
    MutexLock lock(mutex_);
    lists_[list].PushBack(request, due_ns);
    // Behind an older one of its list the thread wakes in time anyway.
    if (lists_[list].head == request) changed_.NotifyAll();
  }

 private:
  void CompleteWhenDue() {
    mutex_.Lock();
    while (!ends_) {
      const size_t list = Earliest();
      DeviceRequest* const first = lists_[list].head;
      if (first == nullptr) {
        changed_.Wait(mutex_);
        continue;
      }
      const int64_t early_ns = DueList::DueNs(first) - NowNs();
      if (early_ns > 0) {
        (void)changed_.WaitFor(mutex_, std::chrono::nanoseconds(early_ns));
        continue;
      }
      DeviceRequest* const request = lists_[list].PopFront();
      mutex_.Unlock();
      Complete(request);
      mutex_.Lock();
    }
    mutex_.Unlock();
  }

  size_t Earliest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (lists_[1].head == nullptr) return 0;
    if (lists_[0].head == nullptr) return 1;
    return DueList::DueNs(lists_[1].head) < DueList::DueNs(lists_[0].head) ? 1 : 0;
  }

  const std::array<int64_t, 2> latency_ns_;  // as lists_
  Mutex mutex_;
  CondVar changed_;
  std::array<DueList, 2> lists_ ABSL_GUARDED_BY(mutex_);  // flushes are the second
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;  // last: it uses the others
};

class NullDeviceImpl final : public NullDevice {
 public:
  explicit NullDeviceImpl(const NullDeviceOptions& options) : options_(options) {
    capabilities_.size_bytes = options.size_bytes;
    capabilities_.max_queues = options.max_queues;
    capabilities_.volatile_write_cache = options.volatile_cache;
    capabilities_.discard = true;
    capabilities_.write_zeroes = true;
  }

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t /*index*/, uint32_t /*depth*/) override {
    if (options_.latency_us == 0 && options_.flush_latency_us == 0) return std::make_unique<NullQueue>(&flushes_);
    return std::make_unique<DelayedNullQueue>(&flushes_, options_);
  }
  uint64_t flushes() const override { return flushes_.load(std::memory_order_relaxed); }

 private:
  const std::string name_ = "null device";
  const NullDeviceOptions options_;
  DeviceCapabilities capabilities_;
  std::atomic<uint64_t> flushes_{0};
};

}  // namespace

std::unique_ptr<NullDevice> NullDevice::Create(const NullDeviceOptions& options) {
  return std::make_unique<NullDeviceImpl>(options);
}

}  // namespace elidefs::blockio
