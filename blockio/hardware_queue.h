// HardwareQueue: one submission channel of the device with its tags, its waiting bios and its flush queue.
//
// Dispatch is serialised without a lock: the thread that finds `dispatching_` false hands everything that is ready to
// the device, others only queue. So DeviceQueue::Submit sees one thread at a time, no lock is held while a device
// completes inside Submit, and an end_io that submits again does not recurse (bounded by the number of queues).
//
// Lifetime: every bio, and every flush that the ledger asked for, holds a reference on the QuiesceRef until the last
// thing its completion does. The owner destroys the queue after Freeze.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "blockio/bio.h"
#include "blockio/flush_ledger.h"
#include "blockio/flush_queue.h"
#include "blockio/quiesce_ref.h"
#include "blockio/request_queue.h"
#include "blockio/tag_set.h"

namespace elidefs::blockio {

struct HardwareQueueCounters {
  HardwareQueueStats queue;
  uint64_t reads = 0, writes = 0, discards = 0;
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t errors = 0;
};

class HardwareQueue {
 public:
  // Borrows all but the device queue. Null when there is no memory for `depth` tags.
  static std::unique_ptr<HardwareQueue> Create(std::unique_ptr<DeviceQueue> device_queue,
                                               const DeviceCapabilities* capabilities, FlushLedger* ledger,
                                               QuiesceRef* users, uint32_t depth,
                                               FlushQueue::Clock::duration starvation_bound);
  // Nothing is in flight; waits for the thread that dispatched last.
  ~HardwareQueue();
  HardwareQueue(const HardwareQueue&) = delete;
  HardwareQueue& operator=(const HardwareQueue&) = delete;

  // A valid bio, its private fields reset; the caller took its reference on `users`.
  void Submit(Bio* bio) ABSL_LOCKS_EXCLUDED(mutex_);
  // A flush for the ledger; the caller took a reference, which is given back when that flush has completed.
  void RequestFlush() ABSL_LOCKS_EXCLUDED(mutex_);

  // Nests. Returns when no thread is inside DeviceQueue::Submit; so not to be called from end_io.
  void Quiesce() ABSL_LOCKS_EXCLUDED(mutex_);
  void Unquiesce() ABSL_LOCKS_EXCLUDED(mutex_);

  HardwareQueueCounters Counters() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  HardwareQueue(std::unique_ptr<DeviceQueue> device_queue, const DeviceCapabilities* capabilities, FlushLedger* ledger,
                QuiesceRef* users, FlushQueue::Clock::duration starvation_bound);
  struct FlushRequest : DeviceRequest {
    HardwareQueue* queue = nullptr;
    Ticket ticket = kNoNeed;
  };

  // Puts the bio where its next step waits; true when no step is left and the caller must End it.
  [[nodiscard]] bool StartStep(Bio* bio) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands what is ready to the device, unless a thread is at it already. Releases the mutex meanwhile.
  void Run() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills `request` with the next piece of the first waiting bio.
  void PrepareChild(Request* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutSegments(Bio* bio, Request* request);
  void CompleteChild(Request* request, int error) ABSL_LOCKS_EXCLUDED(mutex_);
  void CompleteFlush(int error) ABSL_LOCKS_EXCLUDED(mutex_);
  void FlushStepDone(Bio* bio, int error) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls end_io; the bio is gone afterwards. The reference is the caller's to give back.
  void End(Bio* bio);

  std::unique_ptr<DeviceQueue> device_queue_;
  const DeviceCapabilities& capabilities_;
  FlushLedger* const ledger_;
  QuiesceRef* const users_;
  FlushRequest flush_request_;  // the only one: C1, and no tag is needed to flush

  mutable Mutex mutex_;
  CondVar idle_;
  std::unique_ptr<TagSet> tags_ ABSL_GUARDED_BY(mutex_) ABSL_PT_GUARDED_BY(mutex_);  // constant after Create
  FlushQueue flush_queue_ ABSL_GUARDED_BY(mutex_);
  BioList waiting_ ABSL_GUARDED_BY(mutex_);  // for a tag, in submission order
  bool dispatching_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t quiesce_depth_ ABSL_GUARDED_BY(mutex_) = 0;
  HardwareQueueCounters counters_ ABSL_GUARDED_BY(mutex_);
};

// Marks the calling thread as running completions of a queue, whose reference it holds: a bio submitted from end_io
// passes a door that is being closed, because Freeze could otherwise wait for a completion that waits for Freeze.
class CompletionScope {
 public:
  explicit CompletionScope(const QuiesceRef* users) : outer_(Current()), users_(users) { Thread::Slot() = this; }
  ~CompletionScope() { Thread::Slot() = const_cast<CompletionScope*>(outer_); }
  CompletionScope(const CompletionScope&) = delete;
  CompletionScope& operator=(const CompletionScope&) = delete;

  static bool Holds(const QuiesceRef* users) {
    for (const CompletionScope* scope = Current(); scope != nullptr; scope = scope->outer_) {
      if (scope->users_ == users) return true;
    }
    return false;
  }

 private:
  static const CompletionScope* Current() { return static_cast<const CompletionScope*>(Thread::Slot()); }
  const CompletionScope* const outer_;
  const QuiesceRef* const users_;
};

}  // namespace elidefs::blockio
