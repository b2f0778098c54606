// FlushLedger: which flushes were dispatched and which succeeded, on one leaf device with one volatile write cache
// (rules E1-E6, E8, E9, E11 of docs/flush_elision.md). The one place that decides whether a sync needs a flush.
//
// Threads: all methods are thread-safe. `durable() >= need` is the whole cost of a sync that needs nothing: one acquire
// load, no lock, no shared line written.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "blockio/ticket.h"

namespace elidefs::blockio {

enum class AwaitOutcome : uint8_t {
  kElided,  // already durable; the waiter was not queued
  kJoined,  // a flush that covers the need is in flight, or is queued and not yet dispatched
  kIssued,  // this call caused a flush
  kFailed,  // the leaf has failed and the need was not durable before; the waiter was not queued
};

// Intrusive; owned by the caller, alive until `done` ran. `done` must not block.
struct FlushWaiter {
  Ticket need = kNoNeed;
  int error = 0;  // result: 0 or EIO
  void (*done)(FlushWaiter* waiter) = nullptr;
  void* context = nullptr;
  FlushWaiter* next = nullptr;
};

struct FlushStats {
  Ticket issued = 0;
  Ticket durable = 0;
  uint64_t requested = 0;  // Await calls
  uint64_t elided = 0;
  uint64_t joined = 0;
  uint64_t caused = 0;   // Await calls that caused a flush
  uint64_t refused = 0;  // Await calls answered EIO at once
  uint64_t failed_flushes = 0;
  bool failed = false;
  bool has_volatile_cache = true;
};

// Test-only seams: each plants one bug that the suite must catch (`planted.*` tests). All off in production.
struct LedgerPlantedBugs {
  bool always_elide = false;
  bool need_is_issued = false;        // records `issued` instead of `issued + 1` (breaks E2)
  bool durable_on_failure = false;    // a failed flush advances `durable` (breaks E4)
  bool retire_out_of_order = false;   // breaks E3
  bool stale_issued = false;          // loads `issued` once for several completions (breaks E2)
  bool release_by_list = false;       // a flush releases whoever waits when it completes (breaks E3)
  bool joiner_returns_early = false;  // breaks E5
  bool clear_on_failure = false;      // after a failed flush the ledger starts afresh (breaks E4)
  bool ignore_later_flushes = false;  // retires a flush although one dispatched before its completion is unknown (E3)
};

class FlushLedger {
 public:
  // `dispatch` asks the block layer for one more flush; it must arrange that Dispatched/Completed are called for it. It
  // is called without locks held. `volatile_cache` false: nothing is issued (E9) until BecomeVolatile.
  FlushLedger(bool volatile_cache, std::function<void()> dispatch);
  FlushLedger(const FlushLedger&) = delete;
  FlushLedger& operator=(const FlushLedger&) = delete;

  // E2: the need of a write whose completion the caller has just acquired. Without a volatile cache as well, so that
  // there is something to go by when the device gets one (E8).
  Ticket NeedOfCompletedWrite() const;
  // The highest ticket without a volatile cache: everything completed is stable (E9).
  Ticket durable() const {
    if (!has_volatile_cache()) return std::numeric_limits<Ticket>::max();
    return durable_.load(std::memory_order_acquire);
  }
  Ticket issued() const { return issued_.load(std::memory_order_acquire); }
  // An inode is stable iff this holds (E3). `floor_`: see BecomeVolatile.
  bool IsDurable(Ticket need) const { return durable() >= std::max(need, floor_.load(std::memory_order_acquire)); }
  bool has_volatile_cache() const { return volatile_cache_.load(std::memory_order_acquire); }
  // E8: somebody switched the device's write cache on. From here on nothing counts as durable, not even what never had
  // a need (E11: this ledger has seen no flush yet), until a flush succeeded; the caller asks for one at once. There is
  // no way back: what a cache held before it was switched off would be unproved as well.
  void BecomeVolatile() {
    floor_.store(issued() + 1, std::memory_order_release);
    volatile_cache_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // E3/E5: elide, join or issue. On kJoined/kIssued `waiter->done` is called exactly once, possibly before this
  // returns.
  AwaitOutcome Await(FlushWaiter* waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocking form; `outcome` may be null. Returns 0 or EIO.
  [[nodiscard]] int AwaitBlocking(Ticket need, AwaitOutcome* outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // A flush regardless of needs: the first of a mount (E11). Returns 0 or EIO.
  [[nodiscard]] int FlushUnconditionally() ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for a ticket that was taken (E3): `done` is called exactly once, possibly before this returns, with EIO when
  // the leaf fails first. For the block layer's own sequences; not counted as a request.
  void AwaitRetirement(FlushWaiter* waiter) ABSL_LOCKS_EXCLUDED(mutex_);

  // Called by the block layer. Dispatched (E1) takes the ticket, before the request is published to the device.
  Ticket Dispatched() ABSL_LOCKS_EXCLUDED(mutex_);
  void Completed(Ticket ticket, int error) ABSL_LOCKS_EXCLUDED(mutex_);
  // A flush that was asked for could not be dispatched at all (device gone): retires as failed.
  void NeverDispatched(int error) ABSL_LOCKS_EXCLUDED(mutex_);
  // E4/E12: the leaf lost its cache, a request timed out. Every waiter and every unstable need answers EIO from now on.
  void FailLeaf() ABSL_LOCKS_EXCLUDED(mutex_);

  FlushStats Stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  void PlantBugs(const LedgerPlantedBugs& bugs) { bugs_ = bugs; }

 private:
  struct InFlight {
    Ticket ticket;
    bool done;
    Ticket issued_at_completion;  // the newest ticket when it completed
  };
  // Queues the waiter; true when a flush has to be asked for (E5 found none to join).
  bool Enqueue(FlushWaiter* waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // E3, for the oldest flush in flight.
  bool FrontMayRetire() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the waiters that `durable` (or the failure) releases onto `released`.
  void Retire(FlushWaiter** released) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void RunAll(FlushWaiter* released);

  std::atomic<bool> volatile_cache_;
  const std::function<void()> dispatch_;
  std::atomic<Ticket> issued_{0};
  std::atomic<Ticket> durable_{0};
  std::atomic<bool> failed_{false};
  std::atomic<Ticket> floor_{kNoNeed};  // no need counts as less
  LedgerPlantedBugs bugs_;
  mutable std::atomic<Ticket> stale_issued_{0};  // for the bug of that name

  mutable Mutex mutex_;
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);  // in ticket order; bounded by the number of flush queues
  // 1 while the newest flush asked for has seen no Dispatched since; any flush dispatched meanwhile satisfies it too.
  uint64_t undispatched_ ABSL_GUARDED_BY(mutex_) = 0;
  FlushWaiter* waiters_ ABSL_GUARDED_BY(mutex_) = nullptr;
  FlushStats counts_ ABSL_GUARDED_BY(mutex_);  // issued/durable/failed are filled in by Stats()
  std::atomic<uint64_t> elided_fast_{0};
};

}  // namespace elidefs::blockio
