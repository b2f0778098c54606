// Commits that overlap: which flush serves whom, with a gate in front of the device's flushes so that nothing is left
// to timing.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {
namespace {

using blockio::MemoryDevice;

const TestVolume& SmallVolume() {
  return MakeVolume("-b 1024 -J size=1", 6);
}

// Holds every flush until it is let through, so that a test decides what happens during one.
class FlushGate {
 public:
  blockio::FaultDevice::Verdict Decide(const DeviceRequest& request) {
    if (request.operation != Operation::kFlush) return {};
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return arrived_ <= allowed_; });
    return {};
  }
  void WaitForFlush(uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= number; });
  }
  void AllowUpTo(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_ = number;
    changed_.notify_all();
  }
  uint64_t arrived() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t arrived_ = 0;
  uint64_t allowed_ = ~0ULL;
};

struct CountingWaiter {
  CommitWaiter waiter;
  std::atomic<int> result{-1};
  explicit CountingWaiter(TransactionId id) {
    waiter.transaction = id;
    waiter.context = this;
    waiter.done = [](CommitWaiter* self) { static_cast<CountingWaiter*>(self->context)->result = self->error; };
  }
  bool WaitForSuccess() const {
    for (int i = 0; i < 20000 && result == -1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return result == 0;
  }
};

// A mounted volume whose flushes from now on wait at a gate.
struct GatedVolume {
  GatedVolume() {
    stack.Mount();
    before = gate.arrived();
    gate.AllowUpTo(before);
  }

  const TestVolume& volume = SmallVolume();
  std::unique_ptr<MemoryDevice> memory = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  FlushGate gate;
  std::unique_ptr<blockio::FaultDevice> device =
      blockio::FaultDevice::Create(memory.get(), [this](const DeviceRequest& request) { return gate.Decide(request); });
  Stack stack{device.get(), volume};
  uint64_t before = 0;  // flushes that had arrived by then
};

TEST(Journal, OverlappingCommitsShareTheirFlushes) {
  GatedVolume gated;
  const TestVolume& volume = gated.volume;
  FlushGate& gate = gated.gate;
  Stack& stack = gated.stack;
  const uint64_t before = gated.before;
  constexpr uint32_t kCommits = 12;
  std::deque<CountingWaiter> waiters;
  for (uint32_t number = 1; number <= kCommits; ++number) {
    const TransactionId id = stack.WriteBlocks({volume.free_blocks[0]}, static_cast<uint8_t>(number));
    waiters.emplace_back(id);
    EXPECT_EQ(stack.journal->Commit(&waiters.back().waiter), CommitOutcome::kStarted);
    // The PRE of the commit before goes on only now that this one is asked for.
    gate.AllowUpTo(before + number - 1);
    gate.WaitForFlush(before + number);
    if (number > 1) {
      EXPECT_EQ(waiters[number - 2].result, -1) << "its record is not durable yet";
    }
  }
  gate.AllowUpTo(~0ULL);
  for (const CountingWaiter& waiter : waiters) EXPECT_TRUE(waiter.WaitForSuccess());
  EXPECT_EQ(gate.arrived() - before, kCommits + 1);
  const JournalStats stats = stack.journal->Stats();
  EXPECT_EQ(stats.commits, kCommits);
  EXPECT_EQ(stats.commit_post_joined, kCommits - 1);
  EXPECT_EQ(stats.commit_post_issued, 1U);
}

TEST(Journal, ManyCallersShareCommits) {
  const TestVolume& volume = SmallVolume();
  auto memory = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  auto device = blockio::FaultDevice::Create(memory.get(), [](const DeviceRequest& request) {
    return blockio::FaultDevice::Verdict{.delay_us = request.operation == Operation::kFlush ? 3000U : 0U};
  });
  Stack stack(device.get(), volume);
  stack.Mount();
  const uint64_t before = memory->flushes();
  std::vector<std::thread> threads;
  for (uint8_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint8_t i = 0; i < 12; ++i) {
        const TransactionId id = stack.WriteBlocks({volume.free_blocks[thread]}, i);
        EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const JournalStats stats = stack.journal->Stats();
  EXPECT_LT(stats.commits, 96U);
  EXPECT_LE(memory->flushes() - before, 2 * stats.commits);
}

// A handle of the next transaction that stays open must not delay the transaction before.
TEST(Journal, APostLeftToACommitThatWaitsForItsHandlesIsIssuedAfterAll) {
  GatedVolume gated;
  const TestVolume& volume = gated.volume;
  FlushGate& gate = gated.gate;
  Stack& stack = gated.stack;
  const uint64_t before = gated.before;
  CountingWaiter first(stack.WriteBlocks({volume.free_blocks[0]}, 1));
  EXPECT_EQ(stack.journal->Commit(&first.waiter), CommitOutcome::kStarted);
  gate.WaitForFlush(before + 1);
  auto handle = stack.journal->Start(2);
  auto buffer = stack.cache->GetZeroed(volume.free_blocks[1]);
  handle->Dirty(*buffer);
  CountingWaiter second(handle->transaction());
  EXPECT_EQ(stack.journal->Commit(&second.waiter), CommitOutcome::kStarted);
  gate.AllowUpTo(~0ULL);
  EXPECT_TRUE(first.WaitForSuccess());
  EXPECT_EQ(second.result, -1);
  handle->Stop();
  EXPECT_TRUE(second.WaitForSuccess());
}

TEST(Journal, ANewTransactionRunsWhileOneIsWritten) {
  GatedVolume gated;
  const TestVolume& volume = gated.volume;
  FlushGate& gate = gated.gate;
  Stack& stack = gated.stack;
  const uint64_t before = gated.before;
  const TransactionId first = stack.WriteBlocks({volume.free_blocks[0]}, 0xA1);
  CountingWaiter waiter(first);
  EXPECT_EQ(stack.journal->Commit(&waiter.waiter), CommitOutcome::kStarted);
  gate.WaitForFlush(before + 1);
  EXPECT_EQ(stack.WriteBlocks({volume.free_blocks[0]}, 0xA2), first + 1);
  EXPECT_EQ(waiter.result, -1);
  gate.AllowUpTo(~0ULL);
  EXPECT_TRUE(waiter.WaitForSuccess());
  // Only the first is in the log: its snapshot, not what the block became later.
  auto ours = MemoryDevice::FromBytes(gated.memory->bytes(), {.volatile_cache = true});
  Stack again(ours.get(), volume);
  EXPECT_EQ(again.Mount().transactions, 1U);
  EXPECT_EQ(again.ReadFromDevice(volume.free_blocks[0])[5], 0xA1);
}

}  // namespace
}  // namespace elidefs::core
