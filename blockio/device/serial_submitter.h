// SerialSubmitter: keeps DeviceQueue::Submit's promise of one thread at a time for devices that stack on another one
// and have threads of their own. No lock is held inside Submit, and a completion that submits again only queues.
#pragma once

#include <deque>

#include "base/mutex.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

class SerialSubmitter {
 public:
  // Borrows `queue`.
  explicit SerialSubmitter(DeviceQueue* queue) : queue_(queue) {}

  void Submit(DeviceRequest* request) ABSL_LOCKS_EXCLUDED(mutex_) {
    mutex_.Lock();
    pending_.push_back(request);
    if (!busy_) {
      busy_ = true;
      while (!pending_.empty()) {
        DeviceRequest* next = pending_.front();
        pending_.pop_front();
        mutex_.Unlock();
        queue_->Submit(next);
        mutex_.Lock();
      }
      busy_ = false;
    }
    mutex_.Unlock();
  }

 private:
  DeviceQueue* const queue_;
  Mutex mutex_;
  std::deque<DeviceRequest*> pending_ ABSL_GUARDED_BY(mutex_);  // bounded by the depth of the queue
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace elidefs::blockio
