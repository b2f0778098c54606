#include "blockio/quiesce_ref.h"

#include <thread>
#include <utility>

namespace elidefs::blockio {
namespace {

void RunAll(std::vector<QuiesceRef::FreezeCallback> callbacks, bool drained) {
  for (QuiesceRef::FreezeCallback& callback : callbacks) callback(drained);
}

}  // namespace

std::vector<QuiesceRef::FreezeCallback> QuiesceRef::Count() {
  if (depth_ == 0 || !barrier_ran_) return {};
  if (!drained_) {
    uint64_t sum = 2 * under_lock_;
    for (const Place& place : places_) {
      uint64_t number = place.number.load(std::memory_order_acquire);
      while ((number & 1U) != 0) {  // Q2: seldom, and short unless the thread was interrupted there
        std::this_thread::yield();
        number = place.number.load(std::memory_order_acquire);
      }
      sum += number;
    }
    if (sum != 0) return {};
    drained_ = true;
    changed_.NotifyAll();
  }
  return std::exchange(callbacks_, {});
}

bool QuiesceRef::TryEnterSlowly() {
  std::vector<FreezeCallback> callbacks;
  {
    MutexLock lock(mutex_);
    if (depth_ == 0) {
      ++under_lock_;
      return true;
    }
    callbacks = Count();
  }
  RunAll(std::move(callbacks), true);
  return false;
}

void QuiesceRef::EnterSlowly() {
  // At the first look the count that EnterQuickly took back may be what a closer has seen (Q3).
  while (!TryEnterSlowly()) {
    MutexLock lock(mutex_);
    while (depth_ > 0) changed_.Wait(mutex_);
  }
}

void QuiesceRef::GetSlowly() {
  MutexLock lock(mutex_);
  ++under_lock_;
}

void QuiesceRef::LeaveSlowly() {
  std::vector<FreezeCallback> callbacks;
  {
    // A freezer waits under this lock, so `this` is alive until the unlock.
    MutexLock lock(mutex_);
    --under_lock_;
    callbacks = Count();
  }
  RunAll(std::move(callbacks), true);
}

void QuiesceRef::ShutDoor() {
  if (depth_++ > 0) return;
  barrier_ran_ = false;
  drained_ = false;
  locked_.store(true, std::memory_order_seq_cst);
}

void QuiesceRef::Freeze() {
  QuiesceRef* const self = this;
  FreezeAll(absl::MakeConstSpan(&self, 1));
}

void QuiesceRef::FreezeAll(absl::Span<QuiesceRef* const> refs) {
  for (QuiesceRef* ref : refs) {
    MutexLock lock(ref->mutex_);
    ref->ShutDoor();
  }
  if (HasHeavyBarrier()) HeavyBarrier();
  for (QuiesceRef* ref : refs) {
    std::vector<FreezeCallback> callbacks;
    {
      MutexLock lock(ref->mutex_);
      ref->barrier_ran_ = true;
      callbacks = ref->Count();
    }
    RunAll(std::move(callbacks), true);
  }
  for (QuiesceRef* ref : refs) {
    MutexLock lock(ref->mutex_);
    while (!ref->drained_) ref->changed_.Wait(ref->mutex_);
  }
}

void QuiesceRef::FreezeAsync(FreezeCallback callback) {
  std::vector<FreezeCallback> callbacks;
  {
    MutexLock lock(mutex_);
    ShutDoor();
    callbacks_.push_back(std::move(callback));
    // Under the lock: an Unfreeze in between would open the door that is being closed here.
    if (fast_) HeavyBarrier();
    barrier_ran_ = true;
    callbacks = Count();
  }
  RunAll(std::move(callbacks), true);
}

void QuiesceRef::Unfreeze() {
  std::vector<FreezeCallback> callbacks;
  {
    MutexLock lock(mutex_);
    if (--depth_ > 0) return;
    callbacks = std::exchange(callbacks_, {});
    locked_.store(!fast_, std::memory_order_release);
    changed_.NotifyAll();
  }
  RunAll(std::move(callbacks), false);
}

bool QuiesceRef::frozen() const {
  MutexLock lock(mutex_);
  return depth_ > 0;
}

}  // namespace elidefs::blockio
