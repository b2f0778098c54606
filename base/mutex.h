// Mutex, MutexLock, CondVar and Notification: std::mutex with clang's thread-safety annotations.
//
// Abseil's own Mutex is not used: Debian ships libabsl built without ThreadSanitizer hooks, so every use of it
// would be reported as a race in the tsan preset (docs/decisions/0002-mutex.md). The annotation macros are Abseil's.
// What blocks or schedules is defined in mutex.cc, thread.cc and clock.cc and nowhere inline: the simulator links
// definitions of its own in their place (docs/decisions/0013-simulated-threads.md).
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

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  void Unlock() ABSL_UNLOCK_FUNCTION();
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
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
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // As Wait; returns false when the timeout passed first.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void NotifyOne();
  void NotifyAll();

 private:
  std::condition_variable cond_;
};

// One event that happens once. The waiter may destroy it as soon as Wait returned.
class Notification {
 public:
  void Notify() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    notified_ = true;
    changed_.NotifyAll();
  }
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!notified_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace elidefs
