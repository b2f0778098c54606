#include "blockio/quiesce_ref.h"

namespace elidefs::blockio {

bool QuiesceRef::TryEnter() {
  uint64_t state = state_.load(std::memory_order_relaxed);
  while ((state & kFrozen) == 0) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void QuiesceRef::Enter() {
  while (!TryEnter()) {
    MutexLock lock(mutex_);
    while (depth_ > 0) changed_.Wait(mutex_);
  }
}

void QuiesceRef::Leave() {
  if (state_.fetch_sub(1, std::memory_order_acq_rel) != (kFrozen | 1U)) return;
  // The last one out behind a closed door. The freezer waits for `drained_`, so `this` is alive until the unlock.
  MutexLock lock(mutex_);
  drained_ = true;
  changed_.NotifyAll();
}

void QuiesceRef::Freeze() {
  MutexLock lock(mutex_);
  if (depth_++ == 0) drained_ = (state_.fetch_or(kFrozen, std::memory_order_acq_rel) == 0);
  while (!drained_) changed_.Wait(mutex_);
}

void QuiesceRef::Unfreeze() {
  MutexLock lock(mutex_);
  if (--depth_ > 0) return;
  state_.fetch_and(~kFrozen, std::memory_order_acq_rel);
  changed_.NotifyAll();
}

}  // namespace elidefs::blockio
