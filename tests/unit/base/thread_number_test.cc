#include "base/thread_number.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/asymmetric_barrier.h"

namespace elidefs {
namespace {

TEST(ThreadNumberTest, NoTwoLivingThreadsShareOne) {
  constexpr uint32_t kThreads = kMaxThreadNumbers + 20;
  std::mutex mutex;
  std::multiset<uint32_t> numbers;
  std::atomic<uint32_t> arrived{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const uint32_t number = ThreadNumber();
      EXPECT_EQ(ThreadNumber(), number);
      {
        const std::lock_guard<std::mutex> lock(mutex);
        numbers.insert(number);
      }
      arrived.fetch_add(1);
      while (arrived.load() < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(numbers.size(), kThreads);
  for (uint32_t number = 0; number < kMaxThreadNumbers; ++number) EXPECT_LE(numbers.count(number), 1U);
  EXPECT_GE(numbers.count(kNoThreadNumber), kThreads - kMaxThreadNumbers);
  EXPECT_EQ(numbers.upper_bound(kMaxThreadNumbers - 1), numbers.lower_bound(kNoThreadNumber)) << "in between is none";
}

TEST(ThreadNumberTest, NumbersAreUsedAgain) {
  std::set<uint32_t> numbers;
  for (uint32_t i = 0; i < 2 * kMaxThreadNumbers; ++i) {
    std::thread([&numbers] { numbers.insert(ThreadNumber()); }).join();
  }
  EXPECT_FALSE(numbers.contains(kNoThreadNumber));
}

TEST(AsymmetricBarrierTest, WorksInAForkedChild) {
  ASSERT_TRUE(HasHeavyBarrier()) << "a kernel without membarrier would be served, but slower";
  HeavyBarrier();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    HeavyBarrier();  // aborts where it cannot keep its promise
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Dekker's mutual exclusion: of two threads that store and then look, one sees the other.
TEST(AsymmetricBarrierTest, OneOfTwoSeesTheOther) {
  constexpr int kRounds = 2000;
  std::atomic<int> round{0};
  std::atomic<int> done{0};
  std::atomic<int> light_flag{0};
  std::atomic<int> heavy_flag{0};
  std::atomic<int> light_saw{0};
  std::thread light([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
      light_flag.store(i, std::memory_order_relaxed);
      LightBarrier();
      light_saw.store(heavy_flag.load(std::memory_order_relaxed), std::memory_order_relaxed);
      done.store(i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    round.store(i, std::memory_order_release);
    heavy_flag.store(i, std::memory_order_relaxed);
    HeavyBarrier();
    const int heavy_saw = light_flag.load(std::memory_order_relaxed);
    while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
    ASSERT_TRUE(heavy_saw == i || light_saw.load(std::memory_order_relaxed) == i) << "round " << i;
  }
  light.join();
}

}  // namespace
}  // namespace elidefs
