// Mutex, MutexLock and CondVar: std::mutex with clang's thread-safety annotations.
//
// Abseil's own Mutex is not used: Debian ships libabsl built without ThreadSanitizer hooks, so every use of it
// would be reported as a race in the tsan preset (docs/decisions/0002-mutex.md). The annotation macros are Abseil's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

#ifdef __SANITIZE_THREAD__
#define ELIDEFS_NOINLINE_UNDER_TSAN [[gnu::noinline]]
#else
#define ELIDEFS_NOINLINE_UNDER_TSAN
#endif

namespace elidefs {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  // Tells the analysis, not the machine, that the caller holds this mutex (callbacks that run under a lock).
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// A mutex of which a thread may hold several in an order that changes while the program runs: the tree of directories,
// in which a rename can make the child of yesterday the parent of today. ThreadSanitizer remembers the order of objects
// for good and would report that as a deadlock; tests/tsan_suppressions.txt names this class's Lock, which therefore
// has a frame of its own in that preset.
class ABSL_LOCKABLE TreeMutex : public Mutex {
 public:
  ELIDEFS_NOINLINE_UNDER_TSAN void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { Mutex::Lock(); }
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  explicit MutexLock(TreeMutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // The caller holds `mutex`; it is released while waiting and held again on return. Spurious wake-ups happen.
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cond_.wait(lock);
    lock.release();
  }
  // As Wait; returns false when the timeout passed first.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = cond_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { cond_.notify_one(); }
  void NotifyAll() { cond_.notify_all(); }

 private:
  std::condition_variable cond_;
};

}  // namespace elidefs
