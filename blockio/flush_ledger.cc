#include "blockio/flush_ledger.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace elidefs::blockio {
namespace {

// One blocked thread. The waker notifies under the lock, so the sleeper may destroy this as soon as it holds the lock.
struct BlockingWaiter {
  FlushWaiter waiter;
  Mutex mutex;
  CondVar finished_cond;
  bool finished ABSL_GUARDED_BY(mutex) = false;

  BlockingWaiter() {
    waiter.context = this;
    waiter.done = [](FlushWaiter* done_waiter) {
      auto* self = static_cast<BlockingWaiter*>(done_waiter->context);
      MutexLock lock(self->mutex);
      self->finished = true;
      self->finished_cond.NotifyOne();
    };
  }
  int Wait() {
    MutexLock lock(mutex);
    while (!finished) finished_cond.Wait(mutex);
    return waiter.error;
  }
};

}  // namespace

FlushLedger::FlushLedger(bool volatile_cache, std::function<void()> dispatch)
    : volatile_cache_(volatile_cache), dispatch_(std::move(dispatch)) {}

Ticket FlushLedger::NeedOfCompletedWrite() const {
  // E2: sequentially consistent, as is the read-modify-write in Dispatched(). Any flush whose ticket was taken before
  // this load is counted as too early, which is at worst one flush too many and never one too few.
  const Ticket issued = issued_.load(std::memory_order_seq_cst);
  if (bugs_.stale_issued) return stale_issued_.exchange(issued) + 1;
  return bugs_.need_is_issued ? issued : issued + 1;
}

AwaitOutcome FlushLedger::Await(FlushWaiter* waiter) {
  waiter->error = 0;
  if (bugs_.always_elide || IsDurable(waiter->need)) {  // E3, E9
    elided_fast_.fetch_add(1, std::memory_order_relaxed);
    return AwaitOutcome::kElided;
  }
  {
    MutexLock lock(mutex_);
    if (IsDurable(waiter->need)) {  // retired since the look above
      ++counts_.elided;
      return AwaitOutcome::kElided;
    }
    if (failed_.load(std::memory_order_relaxed)) {  // E4: without a flush, however many later ones would succeed
      ++counts_.refused;
      waiter->error = EIO;
      return AwaitOutcome::kFailed;
    }
    if (bugs_.joiner_returns_early && waiter->need <= issued_.load(std::memory_order_relaxed)) {
      return AwaitOutcome::kElided;
    }
    if (!Enqueue(waiter)) {
      ++counts_.joined;
      return AwaitOutcome::kJoined;
    }
    ++counts_.caused;
  }
  dispatch_();
  return AwaitOutcome::kIssued;
}

bool FlushLedger::Enqueue(FlushWaiter* waiter) {
  const Ticket issued = issued_.load(std::memory_order_relaxed);
  waiter->need = std::max(waiter->need, floor_.load(std::memory_order_relaxed));
  // No completed write can need more than the next ticket; a larger number would wait for ever.
  if (waiter->need > issued + 1) waiter->need = issued + 1;
  waiter->next = waiters_;
  waiters_ = waiter;
  // E5: a ticket that covers the need was taken and, the need not being durable, has not retired yet.
  if (waiter->need <= issued) return false;
  // A flush that was asked for and not dispatched will get a ticket above `issued`, so it covers every need there is.
  if (undispatched_ > 0) return false;
  undispatched_ = 1;
  return true;
}

int FlushLedger::AwaitBlocking(Ticket need, AwaitOutcome* outcome) {
  BlockingWaiter blocking;
  blocking.waiter.need = need;
  const AwaitOutcome result = Await(&blocking.waiter);
  if (outcome != nullptr) *outcome = result;
  if (result == AwaitOutcome::kElided) return 0;
  if (result == AwaitOutcome::kFailed) return EIO;
  return blocking.Wait();
}

int FlushLedger::FlushUnconditionally() {
  if (!has_volatile_cache()) return 0;  // E9
  BlockingWaiter blocking;
  bool ask = false;
  {
    MutexLock lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return EIO;
    blocking.waiter.need = issued_.load(std::memory_order_relaxed) + 1;
    ask = Enqueue(&blocking.waiter);
  }
  if (ask) dispatch_();
  return blocking.Wait();
}

void FlushLedger::AwaitRetirement(FlushWaiter* waiter) {
  waiter->error = 0;
  waiter->next = nullptr;
  if (!IsDurable(waiter->need)) {
    MutexLock lock(mutex_);
    if (!IsDurable(waiter->need)) {
      if (!failed_.load(std::memory_order_relaxed)) {
        waiter->next = waiters_;
        waiters_ = waiter;
        return;
      }
      waiter->error = EIO;
    }
  }
  waiter->done(waiter);
}

Ticket FlushLedger::Dispatched() {
  MutexLock lock(mutex_);
  // E1: from here on nobody new may count on this flush unless its need is at most `ticket`. Whatever was asked for is
  // satisfied by this ticket, whoever caused it: it is above every need recorded so far.
  const Ticket ticket = issued_.fetch_add(1, std::memory_order_seq_cst) + 1;
  undispatched_ = 0;
  in_flight_.push_back(InFlight{.ticket = ticket, .done = false, .issued_at_completion = 0});
  return ticket;
}

void FlushLedger::Completed(Ticket ticket, int error) {
  FlushWaiter* released = nullptr;
  {
    MutexLock lock(mutex_);
    if (bugs_.durable_on_failure) error = 0;
    const bool failed_before = failed_.load(std::memory_order_relaxed);
    if (error != 0 && !failed_before) Fail();
    if (error != 0 && bugs_.clear_on_failure) {
      Retire(&released);
      failed_.store(false, std::memory_order_release);
      durable_.store(issued_.load(std::memory_order_relaxed), std::memory_order_release);
    }
    for (auto flush = in_flight_.begin(); flush != in_flight_.end(); ++flush) {
      if (flush->ticket != ticket) continue;
      flush->done = true;
      flush->issued_at_completion = issued_.load(std::memory_order_relaxed);
      if (failed_before) {  // E4: dispatched after the failure; a success comes too late to count
        if (error != 0) ++counts_.failed_flushes;
        in_flight_.erase(flush);
      }
      break;
    }
    Retire(&released);
    if (bugs_.retire_out_of_order && error == 0 && ticket > durable_.load(std::memory_order_relaxed)) {
      durable_.store(ticket, std::memory_order_release);
      Retire(&released);
    }
  }
  RunAll(released);
}

void FlushLedger::NeverDispatched(int /*error*/) {
  FlushWaiter* released = nullptr;
  {
    MutexLock lock(mutex_);
    undispatched_ = 0;
    ++counts_.failed_flushes;  // E1: a ticket that was never dispatched retires as failed
    Fail();
    Retire(&released);
  }
  RunAll(released);
}

void FlushLedger::FailLeaf() {
  FlushWaiter* released = nullptr;
  {
    MutexLock lock(mutex_);
    Fail();
    Retire(&released);
  }
  RunAll(released);
}

void FlushLedger::Fail() {
  if (failed_.load(std::memory_order_relaxed)) return;
  // E4: every flush in flight counts as failed, those that succeeded behind an unfinished one included.
  counts_.failed_flushes += in_flight_.size();
  in_flight_.clear();
  failed_.store(true, std::memory_order_release);
}

bool FlushLedger::FrontMayRetire() const {
  if (in_flight_.empty() || !in_flight_.front().done) return false;
  if (bugs_.ignore_later_flushes) return true;
  // One that was dispatched before this one completed may have failed before this one was carried out, with what both
  // were to cover; its completion is still on its way. A file reports such an error to one fsync only.
  const Ticket newest = in_flight_.front().issued_at_completion;
  return std::all_of(in_flight_.begin(), in_flight_.end(),
                     [newest](const InFlight& flush) { return flush.done || flush.ticket > newest; });
}

void FlushLedger::Retire(FlushWaiter** released) {
  const bool failed = failed_.load(std::memory_order_relaxed);
  const Ticket durable_before = durable_.load(std::memory_order_relaxed);
  Ticket durable = durable_before;
  // E3: in ticket order, and only while every earlier flush succeeded.
  while (!failed && FrontMayRetire()) {
    if (in_flight_.front().ticket > durable) durable = in_flight_.front().ticket;
    in_flight_.pop_front();
  }
  durable_.store(durable, std::memory_order_release);
  FlushWaiter** link = &waiters_;
  while (*link != nullptr) {
    FlushWaiter* waiter = *link;
    const bool listed = bugs_.release_by_list && !failed && durable > durable_before;
    const bool covered = durable >= waiter->need || listed;  // never by membership of a list
    if (!covered && !failed) {
      link = &waiter->next;
      continue;
    }
    waiter->error = covered ? 0 : EIO;
    *link = waiter->next;
    // `waiters_` holds the newest first; pushing on the front again hands them out oldest first.
    waiter->next = *released;
    *released = waiter;
  }
}

void FlushLedger::RunAll(FlushWaiter* released) {
  while (released != nullptr) {
    FlushWaiter* waiter = released;
    released = waiter->next;  // `done` may free or reuse the waiter
    waiter->done(waiter);
  }
}

FlushStats FlushLedger::Stats() const {
  MutexLock lock(mutex_);
  FlushStats stats = counts_;
  stats.elided += elided_fast_.load(std::memory_order_relaxed);
  stats.requested = stats.elided + stats.joined + stats.caused + stats.refused;
  stats.issued = issued();
  stats.durable = durable_.load(std::memory_order_acquire);
  stats.has_volatile_cache = has_volatile_cache();
  stats.failed = failed();
  return stats;
}

}  // namespace elidefs::blockio
