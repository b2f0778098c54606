// The scheduler itself: order by seed, virtual time, and that it notices when every thread waits.
#include "tests/simulator/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace elidefs::simulator {
namespace {

std::string Interleaving(uint64_t seed) {
  std::string trace;
  RunSimulated({.seed = seed, .preempt_one_in = 3}, [&] {
    Mutex mutex;
    std::vector<Thread> threads;
    for (char letter = 'a'; letter < 'd'; ++letter) {
      threads.emplace_back("letter", [&, letter] {
        for (int i = 0; i < 10; ++i) {
          MutexLock lock(mutex);
          trace += letter;
        }
      });
    }
    for (Thread& thread : threads) thread.Join();
  });
  return trace;
}

class SchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsDeterministic()) GTEST_SKIP() << "real threads under a sanitizer";
  }
};

TEST_F(SchedulerTest, TheSeedDecidesTheOrder) {
  EXPECT_EQ(Interleaving(1), Interleaving(1));
  EXPECT_NE(Interleaving(1), Interleaving(2));
  EXPECT_EQ(Interleaving(3).size(), 30U);
}

TEST_F(SchedulerTest, TimeJumpsToTheNextDeadline) {
  const auto before = std::chrono::steady_clock::now();
  bool notified = true;
  std::chrono::nanoseconds virtual_time{};
  RunSimulated({}, [&] {
    const SteadyClock::time_point start = SteadyClock::now();
    SleepFor(std::chrono::seconds(100));
    Mutex mutex;
    CondVar changed;
    MutexLock lock(mutex);
    notified = changed.WaitFor(mutex, std::chrono::seconds(20));
    virtual_time = SteadyClock::now() - start;
  });
  EXPECT_FALSE(notified);
  EXPECT_GE(virtual_time, std::chrono::seconds(120));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
}

TEST_F(SchedulerTest, NotificationsWakeWhoWaits) {
  int woken = 0;
  RunSimulated({.seed = 5, .preempt_one_in = 2}, [&] {
    Notification go;
    std::vector<Thread> threads;
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back("waiter", [&] {
        go.Wait();
        ++woken;
      });
    }
    go.Notify();
    for (Thread& thread : threads) thread.Join();
  });
  EXPECT_EQ(woken, 5);
}

using SchedulerDeathTest = SchedulerTest;

TEST_F(SchedulerDeathTest, ThreadsThatWaitForEachOtherAreReported) {
  EXPECT_DEATH(RunSimulated({.seed = 9},
                            [] {
                              Mutex first;
                              Mutex second;
                              Notification both;
                              Thread other("other", [&] {
                                MutexLock lock(second);
                                both.Wait();
                                MutexLock inner(first);
                              });
                              MutexLock lock(first);
                              SleepFor(std::chrono::milliseconds(1));
                              both.Notify();
                              MutexLock inner(second);
                              other.Join();
                            }),
               "every thread waits");
}

}  // namespace
}  // namespace elidefs::simulator
