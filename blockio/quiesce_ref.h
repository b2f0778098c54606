// QuiesceRef: counts the users of a queue and can shut the door on new ones (percpu_ref in Linux blk-mq's
// q_usage_counter). One atomic word, so entering an open door takes no lock.
//
// Threads: thread-safe. `Leave` touches nothing of this object after the count it gave back became visible to a
// freezer, so the object may be destroyed once Freeze returned and nobody enters any more.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace elidefs::blockio {

class QuiesceRef {
 public:
  QuiesceRef() = default;
  QuiesceRef(const QuiesceRef&) = delete;
  QuiesceRef& operator=(const QuiesceRef&) = delete;

  // Takes a reference; blocks while frozen.
  void Enter() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a reference unless frozen.
  [[nodiscard]] bool TryEnter();
  // One more reference for somebody who holds one; never blocks, frozen or not.
  void Get() { state_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns when no reference is held. Nests; Unfreeze opens the door at the outermost level.
  void Freeze() ABSL_LOCKS_EXCLUDED(mutex_);
  void Unfreeze() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr uint64_t kFrozen = 1ULL << 63U;  // the other bits count references

  std::atomic<uint64_t> state_{0};
  Mutex mutex_;
  CondVar changed_;
  uint32_t depth_ ABSL_GUARDED_BY(mutex_) = 0;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace elidefs::blockio
