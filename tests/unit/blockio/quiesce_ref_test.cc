#include "blockio/quiesce_ref.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace elidefs::blockio {
namespace {

constexpr auto kAWhile = std::chrono::milliseconds(20);

// Freezes on a thread of its own.
class Freezer {
 public:
  explicit Freezer(QuiesceRef* ref)
      : thread_([this, ref] {
          ref->Freeze();
          frozen_.store(true);
        }) {
    while (!ref->frozen()) std::this_thread::yield();
  }
  ~Freezer() { Wait(); }
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;
  bool IsWaiting() const {
    std::this_thread::sleep_for(kAWhile);
    return !frozen_.load();
  }
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> frozen_{false};
  std::thread thread_;
};

// Both ways of counting: per thread, and under the lock as where the kernel has no membarrier.
class QuiesceRefTest : public ::testing::TestWithParam<bool> {
 protected:
  QuiesceRef ref_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Counting, QuiesceRefTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "per_thread" : "under_the_lock"; });

TEST_P(QuiesceRefTest, FreezeWaitsForTheLastReference) {
  QuiesceRef& ref = ref_;
  ref.Enter();
  ref.Get();
  Freezer freezer(&ref);
  EXPECT_FALSE(ref.TryEnter());
  ref.Get();  // a holder is never kept out
  ref.Leave();
  ref.Leave();
  EXPECT_TRUE(freezer.IsWaiting());
  ref.Leave();
  freezer.Wait();
  ref.Unfreeze();
  EXPECT_TRUE(ref.TryEnter());
  ref.Leave();
}

TEST_P(QuiesceRefTest, Nests) {
  QuiesceRef& ref = ref_;
  ref.Freeze();
  ref.Freeze();
  ref.Unfreeze();
  EXPECT_FALSE(ref.TryEnter());
  ref.Unfreeze();
  EXPECT_TRUE(ref.TryEnter());
  ref.Leave();
}

TEST_P(QuiesceRefTest, EnterBlocksUntilUnfrozen) {
  QuiesceRef& ref = ref_;
  ref.Freeze();
  std::atomic<bool> entered{false};
  std::thread user([&] {
    ref.Enter();
    entered.store(true);
    ref.Leave();
  });
  std::this_thread::sleep_for(kAWhile);
  EXPECT_FALSE(entered.load());
  ref.Unfreeze();
  user.join();
  EXPECT_TRUE(entered.load());
  ref.Freeze();  // and nothing is left over
}

TEST_P(QuiesceRefTest, AnotherThreadGivesBack) {
  QuiesceRef& ref = ref_;
  for (int round = 0; round < 3; ++round) {
    ref.Enter();
    ref.Enter();
    std::thread([&ref] { ref.Leave(); }).join();
    Freezer freezer(&ref);
    EXPECT_TRUE(freezer.IsWaiting());
    std::thread([&ref] { ref.Leave(); }).join();
    freezer.Wait();
    ref.Unfreeze();
  }
}

// The place of a thread that has exited keeps what it took, whoever gets its number next.
TEST_P(QuiesceRefTest, ThreadsComeAndGo) {
  QuiesceRef& ref = ref_;
  for (uint32_t i = 0; i < 2 * kMaxThreadNumbers; ++i) std::thread([&ref] { ref.Enter(); }).join();
  Freezer freezer(&ref);
  for (uint32_t i = 0; i < 2 * kMaxThreadNumbers; ++i) {
    ASSERT_TRUE(i > 0 || freezer.IsWaiting());
    std::thread([&ref] { ref.Leave(); }).join();
  }
  freezer.Wait();
}

TEST_P(QuiesceRefTest, MoreThreadsThanPlaces) {
  constexpr uint32_t kThreads = kMaxThreadNumbers + 16;
  QuiesceRef& ref = ref_;
  std::atomic<uint32_t> inside{0};
  std::atomic<bool> leave{false};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ref.Enter();
      inside.fetch_add(1);
      while (!leave.load()) std::this_thread::yield();
      inside.fetch_sub(1);
      ref.Leave();
    });
  }
  while (inside.load() < kThreads) std::this_thread::yield();
  Freezer freezer(&ref);
  EXPECT_TRUE(freezer.IsWaiting());
  leave.store(true);
  freezer.Wait();
  EXPECT_EQ(inside.load(), 0U);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(QuiesceRefTest, FreezeAsyncCallsBackOnce) {
  QuiesceRef& ref = ref_;
  std::vector<bool> calls;
  const auto note = [&calls](bool drained) { calls.push_back(drained); };
  ref.FreezeAsync(note);
  EXPECT_EQ(calls, std::vector<bool>{true}) << "nobody was inside";
  ref.Unfreeze();

  ref.Enter();
  ref.FreezeAsync(note);
  ref.FreezeAsync(note);
  EXPECT_EQ(calls.size(), 1U);
  EXPECT_FALSE(ref.TryEnter());
  ref.Leave();
  EXPECT_EQ(calls, (std::vector<bool>{true, true, true})) << "the last one out calls back";
  ref.Unfreeze();
  EXPECT_FALSE(ref.TryEnter());
  ref.Unfreeze();

  ref.Enter();
  ref.FreezeAsync(note);
  ref.Unfreeze();
  EXPECT_EQ(calls, (std::vector<bool>{true, true, true, false})) << "unfrozen first";
  EXPECT_TRUE(ref.TryEnter());
  ref.Leave();
  ref.Leave();
  EXPECT_EQ(calls.size(), 4U);
}

TEST_P(QuiesceRefTest, TheCallbackMayDestroy) {
  for (int round = 0; round < 200; ++round) {
    auto ref = std::make_unique<QuiesceRef>(GetParam());
    QuiesceRef* const raw = ref.get();
    raw->Enter();
    std::thread user([raw] { raw->Leave(); });
    std::atomic<bool> destroyed{false};
    raw->FreezeAsync([&ref, &destroyed](bool drained) {
      EXPECT_TRUE(drained);
      ref.reset();
      destroyed.store(true);
    });
    user.join();
    while (!destroyed.load()) std::this_thread::yield();
  }
}

TEST_P(QuiesceRefTest, FreezeAllWaitsForEach) {
  std::vector<std::unique_ptr<QuiesceRef>> owned;
  std::vector<QuiesceRef*> refs;
  for (int i = 0; i < 8; ++i) refs.push_back(owned.emplace_back(std::make_unique<QuiesceRef>(GetParam())).get());
  refs[3]->Enter();
  std::atomic<bool> frozen{false};
  std::thread freezer([&] {
    QuiesceRef::FreezeAll(refs);
    frozen.store(true);
  });
  std::this_thread::sleep_for(kAWhile);
  EXPECT_FALSE(frozen.load());
  refs[3]->Leave();
  freezer.join();
  for (QuiesceRef* ref : refs) {
    EXPECT_FALSE(ref->TryEnter());
    ref->Unfreeze();
    EXPECT_TRUE(ref->TryEnter());
    ref->Leave();
  }
}

// Closing against entering: whoever is inside is seen, and nobody comes in. `guarded` is plain memory, so under tsan
// the order of memory is checked as well.
TEST_P(QuiesceRefTest, FrozenMeansAlone) {
  QuiesceRef& ref = ref_;
  std::array<uint64_t, 4> guarded{};
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (size_t i = 0; i + 1 < guarded.size(); ++i) {
    users.emplace_back([&, i] {
      while (!stop.load(std::memory_order_relaxed)) {
        if ((i & 1U) != 0) {
          if (!ref.TryEnter()) continue;
        } else {
          ref.Enter();
        }
        ++guarded[i];
        ref.Leave();
      }
    });
  }
  // References that travel: taken here, given back there.
  std::atomic<int> travelling{0};
  users.emplace_back([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (travelling.load(std::memory_order_acquire) == 0) continue;
      ++guarded[3];
      travelling.store(0, std::memory_order_release);
      ref.Leave();
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  uint64_t total = 0;
  std::mt19937 random(1);
  while (std::chrono::steady_clock::now() < end) {
    if (travelling.load(std::memory_order_acquire) == 0) {
      ref.Enter();
      travelling.store(1, std::memory_order_release);
    }
    ref.Freeze();
    const std::array<uint64_t, 4> before = guarded;
    if (random() % 4 == 0) std::this_thread::yield();
    EXPECT_EQ(guarded, before);
    total = before[0] + before[1] + before[2] + before[3];
    ref.Unfreeze();
  }
  stop.store(true);
  for (std::thread& user : users) user.join();
  EXPECT_GT(total, 0U);
}

}  // namespace
}  // namespace elidefs::blockio
