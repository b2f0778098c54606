#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "blockio/device/segment_cursor.h"
#include "blockio/device/serial_submitter.h"
#include "blockio/device/test_devices.h"

namespace elidefs::blockio {
namespace {

using Clock = SteadyClock;

class FaultDeviceImpl final : public FaultDevice {
 public:
  FaultDeviceImpl(BlockDevice* below, Plan plan)
      : below_(below),
        name_(absl::StrCat("fault device over ", below->name())),
        plan_(std::make_shared<const Plan>(std::move(plan))) {}

  const DeviceCapabilities& capabilities() const override { return below_->capabilities(); }
  bool HasVolatileCache() override { return below_->HasVolatileCache(); }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;
  void SetPlan(Plan plan) override {
    auto shared = std::make_shared<const Plan>(std::move(plan));
    MutexLock lock(mutex_);
    plan_.swap(shared);  // the old plan is destroyed after the lock is released
  }

  Verdict Decide(const DeviceRequest& request) {
    std::shared_ptr<const Plan> plan;
    {
      MutexLock lock(mutex_);
      plan = plan_;
    }
    return *plan ? (*plan)(request) : Verdict{};  // outside the lock: a plan may block or set another one
  }

 private:
  BlockDevice* const below_;
  const std::string name_;
  Mutex mutex_;
  std::shared_ptr<const Plan> plan_ ABSL_GUARDED_BY(mutex_);
};

// What the device below executes of a request that is going to fail.
struct FailingChild : DeviceRequest {
  DeviceRequest* parent = nullptr;
  int verdict = 0;
  std::vector<iovec> pieces;
};

class FaultQueue final : public DeviceQueue {
 public:
  FaultQueue(FaultDeviceImpl* device, std::unique_ptr<DeviceQueue> below)
      : device_(device),
        below_(std::move(below)),
        submitter_(below_.get()),
        thread_("elidefs-fault", [this] { DelayThread(); }) {}
  ~FaultQueue() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    thread_.Join();
  }

  void Submit(DeviceRequest* request) override {
    const FaultDevice::Verdict verdict = device_->Decide(*request);
    if (verdict.delay_us == 0) {
      Execute(request, verdict);
      return;
    }
    MutexLock lock(mutex_);
    delayed_.push_back({Clock::now() + std::chrono::microseconds(verdict.delay_us), request, verdict});
    changed_.NotifyAll();
  }
  uint32_t Poll() override { return below_->Poll(); }

 private:
  struct Delayed {
    Clock::time_point due;
    DeviceRequest* request;
    FaultDevice::Verdict verdict;
  };

  void Execute(DeviceRequest* request, const FaultDevice::Verdict& verdict);
  void DelayThread();

  FaultDeviceImpl* const device_;
  const std::unique_ptr<DeviceQueue> below_;
  SerialSubmitter submitter_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Delayed> delayed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

void FaultQueue::Execute(DeviceRequest* request, const FaultDevice::Verdict& verdict) {
  if (verdict.error == 0) {
    submitter_.Submit(request);
    return;
  }
  const uint64_t block = device_->capabilities().logical_block_bytes;
  uint64_t length = request->length_bytes;
  const bool torn = !verdict.apply_first && verdict.torn_bytes > 0 && request->operation == Operation::kWrite;
  if (torn) length = std::min<uint64_t>(length, verdict.torn_bytes - verdict.torn_bytes % block);
  if (!verdict.apply_first && (!torn || length == 0)) {
    request->complete(request, verdict.error);
    return;
  }
  auto child = std::make_unique<FailingChild>();
  child->operation = request->operation;
  child->fua = request->fua;
  child->offset_bytes = request->offset_bytes;
  child->length_bytes = length;
  SegmentCursor(*request).Take(length, &child->pieces);
  child->segments = child->pieces.data();
  child->segment_count = static_cast<uint32_t>(child->pieces.size());
  child->parent = request;
  child->verdict = verdict.error;
  child->complete = [](DeviceRequest* done, int /*error*/) {
    const std::unique_ptr<FailingChild> owned(static_cast<FailingChild*>(done));
    owned->parent->complete(owned->parent, owned->verdict);
  };
  submitter_.Submit(child.release());
}

void FaultQueue::DelayThread() {
  mutex_.Lock();
  while (!stopping_ || !delayed_.empty()) {
    const auto next = std::min_element(delayed_.begin(), delayed_.end(),
                                       [](const Delayed& a, const Delayed& b) { return a.due < b.due; });
    if (next == delayed_.end()) {
      changed_.Wait(mutex_);
      continue;
    }
    const auto wait = next->due - Clock::now();
    if (wait > Clock::duration::zero()) {
      changed_.WaitFor(mutex_, wait);
      continue;
    }
    const Delayed due = *next;
    delayed_.erase(next);
    mutex_.Unlock();
    Execute(due.request, due.verdict);
    mutex_.Lock();
  }
  mutex_.Unlock();
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> FaultDeviceImpl::CreateQueue(uint32_t index, uint32_t depth) {
  absl::StatusOr<std::unique_ptr<DeviceQueue>> below = below_->CreateQueue(index, depth);
  if (!below.ok()) return below.status();
  return std::make_unique<FaultQueue>(this, *std::move(below));
}

}  // namespace

std::unique_ptr<FaultDevice> FaultDevice::Create(BlockDevice* below, Plan plan) {
  return std::make_unique<FaultDeviceImpl>(below, std::move(plan));
}

}  // namespace elidefs::blockio
