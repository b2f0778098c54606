// QuiesceRef: counts the users of a queue and can shut the door on new ones. Modelled on percpu_ref, Linux blk-mq's
// q_usage_counter (lib/percpu-refcount.c).
//
// While the door is open, entering and leaving touch one cache line that belongs to the calling thread: no lock, no
// read-modify-write, no barrier that the processor sees. Closing pays for it:
//   Q1  Entering counts and then looks at the door; who finds it shut takes the count back and counts under the lock.
//       Leaving must not touch the object once its count is given back, so it looks before it counts; from the look to
//       the count its thread's number is odd. That is a few instructions long and waits for nothing.
//   Q2  The closer shuts the door, runs HeavyBarrier, and waits until each number has been even once. Whoever saw the
//       door open has then counted, everybody else will find it shut. From here on a thread's number only rises and
//       falls back (Q1), so the sum over all is never less than the references held.
//   Q3  While the door is shut, whatever takes the lock counts anew. That includes those of Q1, after they have taken
//       their count back, so the last one to change anything finds the exact sum, and tells the waiters if it is zero.
// A thread's number is never set back: a reference taken on one thread and given back on another leaves one of them
// above and the other below zero, and only the sum means anything. Threads beyond kMaxThreadNumbers, and all threads
// where the kernel has no membarrier, always take the lock.
//
// Threads: thread-safe. Leave touches nothing of this object after a closer can see the count it gave back, so the
// object may be destroyed once Freeze returned and nobody enters any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "base/asymmetric_barrier.h"
#include "base/mutex.h"
#include "base/thread_number.h"

namespace elidefs::blockio {

class QuiesceRef {
 public:
  // `drained` false: unfrozen before the last reference was given back.
  using FreezeCallback = absl::AnyInvocable<void(bool drained)>;

  // `fast` false: all count under the lock.
  explicit QuiesceRef(bool fast = HasHeavyBarrier()) : fast_(fast), locked_(!fast) {}
  QuiesceRef(const QuiesceRef&) = delete;
  QuiesceRef& operator=(const QuiesceRef&) = delete;

  // Takes a reference; blocks while frozen.
  void Enter() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!EnterQuickly()) EnterSlowly();
  }
  // Takes a reference unless frozen.
  [[nodiscard]] bool TryEnter() ABSL_LOCKS_EXCLUDED(mutex_) { return EnterQuickly() || TryEnterSlowly(); }
  // One more reference for somebody who holds one; frozen or not, it waits for nobody's reference.
  void Get() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!EnterQuickly()) GetSlowly();
  }
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!LeaveQuickly()) LeaveSlowly();
  }

  // Returns when no reference is held. Nests; Unfreeze opens the door at the outermost level.
  void Freeze() ABSL_LOCKS_EXCLUDED(mutex_);
  // Shuts the door and returns; `callback` is called once, without locks, when no reference is held any more: here, or
  // by whoever gives back the last one, or by the Unfreeze that comes first. It must not block, and may destroy this
  // object if nobody enters or waits. Counts as one level of Freeze.
  void FreezeAsync(FreezeCallback callback) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Freeze on each, with one barrier for all.
  static void FreezeAll(absl::Span<QuiesceRef* const> refs);
  void Unfreeze() ABSL_LOCKS_EXCLUDED(mutex_);

  bool frozen() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct alignas(64) Place {
    // Twice what this thread took less what it gave back (modulo 2^64), plus 1 between Q1's look and its count. Written
    // by its thread alone.
    std::atomic<uint64_t> number{0};
  };

  // Null: the thread has none.
  std::atomic<uint64_t>* NumberOfThisThread() {
    const uint32_t thread = ThreadNumber();
    return thread < kMaxThreadNumbers ? &places_[thread].number : nullptr;
  }

  // Q1. False: the door is shut or the thread has no place; nothing was counted.
  bool EnterQuickly() {
    std::atomic<uint64_t>* const number = NumberOfThisThread();
    if (number == nullptr) [[unlikely]]
      return false;
    const uint64_t before = number->load(std::memory_order_relaxed);
    number->store(before + 2, std::memory_order_release);
    LightBarrier();
    if (!locked_.load(std::memory_order_acquire)) [[likely]]
      return true;
    number->store(before, std::memory_order_release);
    return false;
  }
  bool LeaveQuickly() {
    std::atomic<uint64_t>* const number = NumberOfThisThread();
    if (number == nullptr) [[unlikely]]
      return false;
    const uint64_t before = number->load(std::memory_order_relaxed);
    number->store(before + 1, std::memory_order_relaxed);
    LightBarrier();
    const bool open = !locked_.load(std::memory_order_acquire);
    number->store(open ? before - 2 : before, std::memory_order_release);
    return open;
  }
  void EnterSlowly() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TryEnterSlowly() ABSL_LOCKS_EXCLUDED(mutex_);
  void GetSlowly() ABSL_LOCKS_EXCLUDED(mutex_);
  void LeaveSlowly() ABSL_LOCKS_EXCLUDED(mutex_);

  // Closing in two halves, HeavyBarrier between them. Until the second nothing counts as drained.
  void ShutDoor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Q2, Q3. What is to be called because nobody is inside any more, after the unlock.
  [[nodiscard]] std::vector<FreezeCallback> Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool fast_;
  std::atomic<bool> locked_;  // the door is shut, or everybody counts under the lock anyway
  std::array<Place, kMaxThreadNumbers> places_;

  mutable Mutex mutex_;
  CondVar changed_;
  uint32_t depth_ ABSL_GUARDED_BY(mutex_) = 0;
  bool barrier_ran_ ABSL_GUARDED_BY(mutex_) = false;  // since the door was shut
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;      // shut, and nobody inside
  uint64_t under_lock_ ABSL_GUARDED_BY(mutex_) = 0;   // references counted here less those given back here, modulo 2^64
  std::vector<FreezeCallback> callbacks_ ABSL_GUARDED_BY(mutex_);  // one for each FreezeAsync that has not ended
};

}  // namespace elidefs::blockio
