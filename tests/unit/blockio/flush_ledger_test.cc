#include "blockio/flush_ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace elidefs::blockio {
namespace {

struct Waiter {
  FlushWaiter waiter;
  int done = 0;
  explicit Waiter(Ticket need) {
    waiter.need = need;
    waiter.context = this;
    waiter.done = [](FlushWaiter* w) { ++static_cast<Waiter*>(w->context)->done; };
  }
  bool Released(int error) const { return done == 1 && waiter.error == error; }
};

class Ledger : public ::testing::Test {
 protected:
  int asked_ = 0;
  FlushLedger ledger_{true, [this] { ++asked_; }};

  void ExpectCountsAddUp() {
    const FlushStats stats = ledger_.Stats();
    EXPECT_EQ(stats.requested, stats.elided + stats.joined + stats.caused + stats.refused);
    EXPECT_LE(stats.durable, stats.issued);
  }
  void TearDown() override { ExpectCountsAddUp(); }
};

TEST_F(Ledger, E2NeedIsTheNextTicket) {
  EXPECT_EQ(ledger_.NeedOfCompletedWrite(), 1U);
  EXPECT_EQ(ledger_.Dispatched(), 1U);
  // A flush dispatched before the completion never covers the write.
  EXPECT_EQ(ledger_.NeedOfCompletedWrite(), 2U);
  ledger_.Completed(1, 0);
  EXPECT_EQ(ledger_.NeedOfCompletedWrite(), 2U);
  EXPECT_FALSE(ledger_.IsDurable(2));
}

TEST_F(Ledger, E3ElidesWhatIsDurableAndWhatNeedsNothing) {
  Waiter nothing(kNoNeed);
  EXPECT_EQ(ledger_.Await(&nothing.waiter), AwaitOutcome::kElided);
  Waiter first(1);
  EXPECT_EQ(ledger_.Await(&first.waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(asked_, 1);
  ledger_.Completed(ledger_.Dispatched(), 0);
  EXPECT_TRUE(first.Released(0));
  Waiter again(1);
  EXPECT_EQ(ledger_.Await(&again.waiter), AwaitOutcome::kElided);
  EXPECT_EQ(again.done, 0);
  EXPECT_EQ(asked_, 1);
  const FlushStats stats = ledger_.Stats();
  EXPECT_EQ(stats.requested, 3U);
  EXPECT_EQ(stats.elided, 2U);
  EXPECT_EQ(stats.caused, 1U);
}

TEST_F(Ledger, E5JoinsAFlushInFlightThatCovers) {
  const Ticket ticket = ledger_.Dispatched();
  Waiter covered(ticket);
  EXPECT_EQ(ledger_.Await(&covered.waiter), AwaitOutcome::kJoined);
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(covered.done, 0);  // nobody returns early
  ledger_.Completed(ticket, 0);
  EXPECT_TRUE(covered.Released(0));
}

TEST_F(Ledger, E5AFlushInFlightThatDoesNotCoverIsNotJoined) {
  const Ticket ticket = ledger_.Dispatched();
  Waiter late(ledger_.NeedOfCompletedWrite());
  EXPECT_EQ(ledger_.Await(&late.waiter), AwaitOutcome::kIssued);
  ledger_.Completed(ticket, 0);
  EXPECT_EQ(late.done, 0);
  ledger_.Completed(ledger_.Dispatched(), 0);
  EXPECT_TRUE(late.Released(0));
}

TEST_F(Ledger, E5JoinsAFlushThatIsNotDispatchedYet) {
  Waiter first(1);
  Waiter second(1);
  EXPECT_EQ(ledger_.Await(&first.waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(ledger_.Await(&second.waiter), AwaitOutcome::kJoined);
  EXPECT_EQ(asked_, 1);
  ledger_.Completed(ledger_.Dispatched(), 0);
  EXPECT_TRUE(first.Released(0));
  EXPECT_TRUE(second.Released(0));
}

TEST_F(Ledger, AFlushSomebodyElseDispatchesServesWaitersButNotLaterNeeds) {
  Waiter first(1);
  EXPECT_EQ(ledger_.Await(&first.waiter), AwaitOutcome::kIssued);
  const Ticket foreign = ledger_.Dispatched();  // a bio's PREFLUSH, say
  Waiter later(ledger_.NeedOfCompletedWrite());
  EXPECT_EQ(ledger_.Await(&later.waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(asked_, 2);
  ledger_.Completed(foreign, 0);
  EXPECT_TRUE(first.Released(0));
  EXPECT_EQ(later.done, 0);
  ledger_.Completed(ledger_.Dispatched(), 0);
  EXPECT_TRUE(later.Released(0));
}

TEST_F(Ledger, E3RetiresInTicketOrder) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_first(first);
  Waiter on_second(second);
  EXPECT_EQ(ledger_.Await(&on_first.waiter), AwaitOutcome::kJoined);
  EXPECT_EQ(ledger_.Await(&on_second.waiter), AwaitOutcome::kJoined);
  ledger_.Completed(second, 0);
  EXPECT_EQ(ledger_.durable(), 0U);
  EXPECT_EQ(on_first.done + on_second.done, 0);
  ledger_.Completed(first, 0);
  EXPECT_EQ(ledger_.durable(), 2U);
  EXPECT_TRUE(on_first.Released(0));
  EXPECT_TRUE(on_second.Released(0));
}

// The second may have failed at the device before the first was carried out there, with what both were to cover.
TEST_F(Ledger, E3WaitsForWhatWasDispatchedBeforeTheCompletion) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_first(first);
  EXPECT_EQ(ledger_.Await(&on_first.waiter), AwaitOutcome::kJoined);
  ledger_.Completed(first, 0);
  EXPECT_EQ(on_first.done, 0);
  const Ticket third = ledger_.Dispatched();  // later than the first one's completion: not waited for
  ledger_.Completed(second, 0);
  EXPECT_TRUE(on_first.Released(0));
  EXPECT_EQ(ledger_.durable(), first);  // the second one waits for the third
  ledger_.Completed(third, 0);
  EXPECT_EQ(ledger_.durable(), third);
}

TEST_F(Ledger, E4EarlierSucceedsFirstAndLaterFails) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_first(first);
  (void)ledger_.Await(&on_first.waiter);
  ledger_.Completed(first, 0);
  ledger_.Completed(second, EIO);
  EXPECT_TRUE(on_first.Released(EIO));
  EXPECT_EQ(ledger_.durable(), 0U);
}

TEST_F(Ledger, E4EarlierFailsLaterSucceedsAfterwards) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_first(first);
  Waiter on_second(second);
  (void)ledger_.Await(&on_first.waiter);
  (void)ledger_.Await(&on_second.waiter);
  ledger_.Completed(first, ENOSPC);
  // Both were in flight, both count as failed.
  EXPECT_TRUE(on_first.Released(EIO));
  EXPECT_TRUE(on_second.Released(EIO));
  ledger_.Completed(second, 0);
  EXPECT_EQ(ledger_.durable(), 0U);
  EXPECT_TRUE(ledger_.failed());
  EXPECT_EQ(ledger_.Stats().failed_flushes, 2U);
}

TEST_F(Ledger, E4LaterSucceedsFirstThenTheEarlierFails) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_second(second);
  (void)ledger_.Await(&on_second.waiter);
  ledger_.Completed(second, 0);
  EXPECT_EQ(on_second.done, 0);
  ledger_.Completed(first, EIO);
  EXPECT_TRUE(on_second.Released(EIO));
  EXPECT_EQ(ledger_.durable(), 0U);
  EXPECT_EQ(ledger_.Stats().failed_flushes, 2U);
}

TEST_F(Ledger, E4LaterFailsWhileTheEarlierIsInFlight) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter on_first(first);
  (void)ledger_.Await(&on_first.waiter);
  ledger_.Completed(second, EIO);
  EXPECT_TRUE(on_first.Released(EIO));  // every flush in flight counts as failed
  ledger_.Completed(first, 0);
  EXPECT_EQ(ledger_.durable(), 0U);
}

TEST_F(Ledger, E4AFailedLeafRefusesUnstableNeedsForEverAndKeepsStableOnes) {
  ledger_.Completed(ledger_.Dispatched(), 0);
  ledger_.Completed(ledger_.Dispatched(), EIO);
  for (int i = 0; i < 3; ++i) {
    Waiter stable(1);
    EXPECT_EQ(ledger_.Await(&stable.waiter), AwaitOutcome::kElided);
    Waiter unstable(2);
    EXPECT_EQ(ledger_.Await(&unstable.waiter), AwaitOutcome::kFailed);
    EXPECT_EQ(unstable.waiter.error, EIO);
    EXPECT_EQ(unstable.done, 0);
    ledger_.Completed(ledger_.Dispatched(), 0);  // later flushes succeed, and change nothing
  }
  EXPECT_EQ(ledger_.durable(), 1U);
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(ledger_.FlushUnconditionally(), EIO);
  AwaitOutcome outcome = AwaitOutcome::kElided;
  EXPECT_EQ(ledger_.AwaitBlocking(2, &outcome), EIO);
  EXPECT_EQ(outcome, AwaitOutcome::kFailed);
  EXPECT_EQ(ledger_.Stats().failed_flushes, 1U);
  EXPECT_EQ(ledger_.Stats().refused, 4U);
}

TEST_F(Ledger, E1ANeverDispatchedFlushRetiresAsFailed) {
  Waiter waiter(1);
  EXPECT_EQ(ledger_.Await(&waiter.waiter), AwaitOutcome::kIssued);
  ledger_.NeverDispatched(ENODEV);
  EXPECT_TRUE(waiter.Released(EIO));
  EXPECT_TRUE(ledger_.failed());
  EXPECT_EQ(ledger_.Stats().failed_flushes, 1U);
}

TEST_F(Ledger, E12FailLeafReleasesEveryWaiterOnce) {
  Waiter joined(ledger_.Dispatched());
  Waiter asked(2);
  (void)ledger_.Await(&joined.waiter);
  (void)ledger_.Await(&asked.waiter);
  ledger_.FailLeaf();
  ledger_.FailLeaf();
  EXPECT_TRUE(joined.Released(EIO));
  EXPECT_TRUE(asked.Released(EIO));
  ledger_.Completed(1, 0);
  EXPECT_EQ(ledger_.durable(), 0U);
  EXPECT_EQ(joined.done, 1);
}

TEST(LedgerWithoutCache, E9NothingIsIssued) {
  FlushLedger ledger(false, [] { FAIL() << "a flush was asked for"; });
  Waiter waiter(ledger.NeedOfCompletedWrite());
  EXPECT_EQ(ledger.Await(&waiter.waiter), AwaitOutcome::kElided);
  EXPECT_EQ(ledger.FlushUnconditionally(), 0);
  EXPECT_EQ(ledger.Stats().issued, 0U);
  EXPECT_EQ(ledger.Stats().elided, 1U);
}

TEST(LedgerWithoutCache, E8NothingIsProvedOnceThereIsACache) {
  int asked = 0;
  FlushLedger ledger(false, [&asked] { ++asked; });
  const Ticket need = ledger.NeedOfCompletedWrite();
  EXPECT_TRUE(ledger.IsDurable(need));
  ledger.BecomeVolatile();
  EXPECT_FALSE(ledger.IsDurable(need));
  Waiter waiter(need);
  EXPECT_EQ(ledger.Await(&waiter.waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(asked, 1);
  ledger.Completed(ledger.Dispatched(), 0);
  EXPECT_TRUE(waiter.Released(0));
  EXPECT_TRUE(ledger.IsDurable(need));
  EXPECT_FALSE(ledger.IsDurable(ledger.NeedOfCompletedWrite()));
}

// E11: nor is what this ledger never saw written, a directory for instance or what a predecessor wrote.
TEST(LedgerWithoutCache, E8WhatHadNoNeedIsUnprovedToo) {
  int asked = 0;
  FlushLedger ledger(false, [&asked] { ++asked; });
  EXPECT_TRUE(ledger.IsDurable(kNoNeed));
  ledger.BecomeVolatile();
  EXPECT_FALSE(ledger.IsDurable(kNoNeed));
  Waiter waiter(kNoNeed);
  EXPECT_EQ(ledger.Await(&waiter.waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(waiter.Released(0));
  ledger.Completed(ledger.Dispatched(), 0);
  EXPECT_TRUE(waiter.Released(0));
  EXPECT_TRUE(ledger.IsDurable(kNoNeed));
}

// Dispatches and completes inside `dispatch`, as a memory device does.
TEST(LedgerSynchronous, DoneMayComeBeforeAwaitReturns) {
  FlushLedger* self = nullptr;
  FlushLedger ledger(true, [&self] { self->Completed(self->Dispatched(), 0); });
  self = &ledger;
  Waiter waiter(1);
  EXPECT_EQ(ledger.Await(&waiter.waiter), AwaitOutcome::kIssued);
  EXPECT_TRUE(waiter.Released(0));
  EXPECT_EQ(ledger.FlushUnconditionally(), 0);
  EXPECT_EQ(ledger.durable(), 2U);  // E11: also when nothing needs it
  EXPECT_EQ(ledger.AwaitBlocking(ledger.NeedOfCompletedWrite(), nullptr), 0);
  EXPECT_EQ(ledger.durable(), 3U);
}

TEST_F(Ledger, AwaitRetirementTakesPartInTheOrder) {
  const Ticket first = ledger_.Dispatched();
  const Ticket second = ledger_.Dispatched();
  Waiter waiter(second);
  ledger_.Completed(second, 0);
  ledger_.AwaitRetirement(&waiter.waiter);
  EXPECT_EQ(waiter.done, 0);
  ledger_.Completed(first, 0);
  EXPECT_TRUE(waiter.Released(0));
  Waiter at_once(second);
  ledger_.AwaitRetirement(&at_once.waiter);
  EXPECT_TRUE(at_once.Released(0));
  EXPECT_EQ(ledger_.Stats().requested, 0U);
}

// A caller that writes and syncs against a model of the device, which several flushes may be in flight on and some of
// which fail. Counts how often a sync was answered 0 for a write that no successful flush had covered.
class LyingDetector {
 public:
  LyingDetector(const LedgerPlantedBugs& bugs, bool with_failures, uint64_t seed)
      : with_failures_(with_failures), random_(seed), ledger_(true, [this] { ++asked_; }) {
    ledger_.PlantBugs(bugs);
  }

  int Run() {
    for (int step = 0; step < 400; ++step) {
      switch (random_() % 4) {
        case 0:
          writes_.push_back({ledger_.NeedOfCompletedWrite(), false});
          break;
        case 1:
          if (!writes_.empty()) Sync();
          break;
        case 2:
          if ((asked_ > 0 || random_() % 4 == 0) && flushes_.size() < 4) {
            asked_ = 0;
            flushes_.push_back({ledger_.Dispatched(), writes_.size()});
          }
          break;
        default:
          if (flushes_.empty()) break;
          if (random_() % 2 == 0) {
            ExecuteOne();
          } else {
            ReportOne();
          }
      }
      Judge();
    }
    return lies_;
  }

 private:
  struct Write {
    Ticket need;
    bool on_medium = false;
    bool lost = false;
  };
  struct Flush {
    Ticket ticket;
    size_t covers;  // writes completed before it was dispatched
    bool executed = false;
    bool fails = false;
  };
  struct PendingSync {
    Waiter waiter;
    size_t write;
    bool judged = false;
  };

  void Sync() {
    syncs_.push_back(std::make_unique<PendingSync>(PendingSync{Waiter(0), random_() % writes_.size()}));
    PendingSync& sync = *syncs_.back();
    sync.waiter.waiter.context = &sync.waiter;
    sync.waiter.waiter.need = writes_[sync.write].need;
    if (ledger_.Await(&sync.waiter.waiter) == AwaitOutcome::kElided && !writes_[sync.write].on_medium) ++lies_;
  }

  // The device carries flushes out in any order. What a failed one was to cover and is not on the medium yet is lost,
  // and no other flush tells: a file reports an error to one fsync only.
  void ExecuteOne() {
    Flush& flush = flushes_[random_() % flushes_.size()];
    if (flush.executed) return;
    flush.executed = true;
    flush.fails = with_failures_ && random_() % 8 == 0;
    for (size_t i = 0; i < flush.covers; ++i) {
      if (flush.fails && !writes_[i].on_medium) writes_[i].lost = true;
      if (!flush.fails && !writes_[i].lost) writes_[i].on_medium = true;
    }
  }

  // And its completions overtake each other.
  void ReportOne() {
    const size_t which = random_() % flushes_.size();
    const Flush flush = flushes_[which];
    if (!flush.executed) return;
    flushes_.erase(flushes_.begin() + static_cast<ptrdiff_t>(which));
    ledger_.Completed(flush.ticket, flush.fails ? EIO : 0);
  }

  void Judge() {
    for (auto& sync : syncs_) {
      if (sync->judged || sync->waiter.done == 0) continue;
      sync->judged = true;
      if (sync->waiter.waiter.error == 0 && !writes_[sync->write].on_medium) ++lies_;
    }
  }

  const bool with_failures_;
  std::mt19937_64 random_;
  int asked_ = 0;
  int lies_ = 0;
  std::vector<Write> writes_;
  std::vector<Flush> flushes_;
  std::vector<std::unique_ptr<PendingSync>> syncs_;
  FlushLedger ledger_;
};

int LiesOverSeeds(const LedgerPlantedBugs& bugs, bool with_failures) {
  int lies = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) lies += LyingDetector(bugs, with_failures, seed).Run();
  return lies;
}

TEST(LedgerModel, TheLedgerNeverLies) {
  EXPECT_EQ(LiesOverSeeds({}, false), 0);
  EXPECT_EQ(LiesOverSeeds({}, true), 0);
}

// Each bug of the ledger, found by the model above over 100 seeds.
TEST(planted, always_elide_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.always_elide = true}, false), 0);
}
TEST(planted, need_is_issued_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.need_is_issued = true}, false), 0);
}
TEST(planted, stale_issued_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.stale_issued = true}, false), 0);
}
TEST(planted, release_by_list_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.release_by_list = true}, false), 0);
}
TEST(planted, joiner_returns_early_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.joiner_returns_early = true}, false), 0);
}
TEST(planted, durable_on_failure_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.durable_on_failure = true}, true), 0);
}
TEST(planted, clear_on_failure_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.clear_on_failure = true}, true), 0);
}
TEST(planted, ignore_later_flushes_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.ignore_later_flushes = true}, true), 0);
}
TEST(planted, retire_out_of_order_in_the_ledger) {
  EXPECT_GT(LiesOverSeeds({.retire_out_of_order = true}, true), 0);
}

TEST(LedgerThreads, EveryWaiterIsReleasedAndCountsAddUp) {
  std::atomic<int> asked{0};
  std::atomic<bool> stop{false};
  FlushLedger ledger(true, [&asked] { asked.fetch_add(1); });
  std::thread device([&] {
    while (!stop.load() || asked.load() > 0) {
      if (asked.load() == 0) {
        std::this_thread::yield();
        continue;
      }
      asked.fetch_sub(1);
      ledger.Completed(ledger.Dispatched(), 0);
    }
  });
  std::vector<std::thread> threads;
  std::atomic<int> errors{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        if (ledger.AwaitBlocking(ledger.NeedOfCompletedWrite(), nullptr) != 0) errors.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  device.join();
  EXPECT_EQ(errors.load(), 0);
  const FlushStats stats = ledger.Stats();
  EXPECT_EQ(stats.requested, 2000U);
  EXPECT_EQ(stats.requested, stats.elided + stats.joined + stats.caused + stats.refused);
  EXPECT_EQ(stats.issued, stats.durable);
}

}  // namespace
}  // namespace elidefs::blockio
