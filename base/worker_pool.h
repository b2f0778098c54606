// A fixed set of threads that runs tasks in FIFO order. Used for work that may block (extent insertion after a data
// write completed, inode eviction) and must therefore not run on a device completion thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace elidefs {

class WorkerPool {
 public:
  // Starts `threads` threads (at least 1) named `name` (shown by ps -L; truncated to 15 bytes).
  WorkerPool(size_t threads, const std::string& name);
  // Runs every task that is still queued, then joins.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Never blocks. The queue is bounded by the callers: each queued task belongs to an in-flight, byte-bounded write
  // or to an inode that is being dropped. Tasks may schedule further tasks.
  void Schedule(absl::AnyInvocable<void()> task);

  // Waits until every task scheduled before the call, and every task these scheduled, has finished.
  void Drain();

 private:
  void Run();

  Mutex mutex_;
  CondVar work_ready_;
  CondVar idle_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace elidefs
