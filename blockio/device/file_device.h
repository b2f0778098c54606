// FileDevice's queue: one io_uring over an image file or a block device.
//
// Threads: Submit is serialised by its caller and, against resubmission, by a lock. Completions are reaped by whoever
// comes first: the queue's own thread, which sleeps in the kernel until one arrives, or a caller of Poll (D6). Handlers
// run without locks.
// Resubmission: a short transfer is continued, and a request that the kernel gave back untouched (EAGAIN, EINTR, or
// ECANCELED, which io_uring may answer for work that an exiting thread had queued to its workers) is sent again from
// the queue's own thread.
#pragma once

#include <liburing.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

class UringQueue final : public DeviceQueue {
 public:
  // `fd` is borrowed; `name` is for the error message.
  static absl::StatusOr<std::unique_ptr<UringQueue>> Create(int fd, const std::string& name, uint32_t index,
                                                            uint32_t depth);
  ~UringQueue() override;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  void Submit(DeviceRequest* request) override;
  uint32_t Poll() override;

 private:
  explicit UringQueue(int fd) : fd_(fd) {}

  // Hands the request, or what is left of it, to the kernel.
  void Send(DeviceRequest* request) ABSL_LOCKS_EXCLUDED(submission_mutex_);
  void PrepareTransfer(DeviceRequest* request, io_uring_sqe* sqe);
  // 0, or the errno of a ring that takes nothing any more; the entry prepared last has then been made harmless.
  int Enter(io_uring_sqe* sqe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(submission_mutex_);
  void Wake() ABSL_LOCKS_EXCLUDED(submission_mutex_);
  uint32_t Reap(bool wait_for_lock);
  // True when the request is complete (it is gone then); false when it goes on.
  bool Finish(DeviceRequest* request, int result);
  void Retry(DeviceRequest* request) ABSL_LOCKS_EXCLUDED(retry_mutex_);
  void SendRetries() ABSL_LOCKS_EXCLUDED(retry_mutex_);
  void CompletionThread();

  const int fd_;
  io_uring ring_ = {};
  Mutex submission_mutex_;  // the submission side of ring_
  Mutex completion_mutex_;  // the completion side of ring_
  Mutex retry_mutex_;
  std::vector<DeviceRequest*> retries_ ABSL_GUARDED_BY(retry_mutex_);
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace elidefs::blockio
