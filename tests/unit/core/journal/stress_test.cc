// Many threads, small log, real completion threads: for ThreadSanitizer, and for the invariants that only load can
// break.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {
namespace {

using blockio::MemoryDevice;
using blockio::VolatileCacheDevice;

TEST(JournalStress, ThreadsShareCommitsCheckpointsAndRevokes) {
  const TestVolume& volume = MakeVolume("-b 1024 -J size=1", 6);
  auto device = VolatileCacheDevice::Create(volume.bytes, {.reorder_seed = 9});
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kBlocksPerThread = 40;
  // Blocks that were freed and whose transaction is durable; each is then free for "file data".
  std::mutex freed_mutex;
  std::vector<BlockNumber> freed;
  JournalOptions options;
  options.commit_interval_ms = 50;
  options.on_durable = [&](TransactionId, const std::vector<BlockRange>& ranges) {
    const std::lock_guard<std::mutex> lock(freed_mutex);
    for (const BlockRange& range : ranges) freed.push_back(range.start);
  };
  std::vector<std::vector<uint8_t>> last(kThreads, std::vector<uint8_t>(kBlocksPerThread, 0));
  {
    Stack stack(device.get(), volume, options);
    stack.Mount();
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(thread);
        for (uint32_t round = 1; round <= 60; ++round) {
          TransactionId id = 0;
          {
            auto handle = stack.journal->Start(60);
            ASSERT_TRUE(handle.ok()) << handle.status();
            for (uint32_t i = 0; i < 30; ++i) {
              const uint32_t index = random() % kBlocksPerThread;
              const BlockNumber block = volume.free_blocks[thread * kBlocksPerThread + index];
              if (random() % 8 == 0) {
                handle->Revoke(block);
                handle->ReleaseWhenDurable({block, 1});
                last[thread][index] = 0;
                continue;
              }
              auto buffer = stack.cache->GetZeroed(block);
              ASSERT_TRUE(buffer.ok());
              handle->Dirty(*buffer);
              std::memset((*buffer)->data(), static_cast<int>(round), volume.geometry.block_bytes);
              last[thread][index] = static_cast<uint8_t>(round);
            }
            id = handle->transaction();
            if (round % 5 == 0) (void)handle->Extend(5);
          }
          if (random() % 3 == 0) {
            EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
            EXPECT_TRUE(stack.journal->IsDurable(id));
          }
          if (random() % 16 == 0) (void)stack.journal->Stats();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(stack.journal->Shutdown().ok());
    const JournalStats stats = stack.journal->Stats();
    EXPECT_GT(stats.tail_updates, 0U);
    EXPECT_GT(stats.checkpointed_blocks, 0U);
    EXPECT_FALSE(freed.empty());
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      for (uint32_t i = 0; i < kBlocksPerThread; ++i) {
        if (last[thread][i] == 0) continue;
        const std::vector<uint8_t> home = stack.ReadFromDevice(volume.free_blocks[thread * kBlocksPerThread + i]);
        EXPECT_EQ(home, std::vector<uint8_t>(1024, last[thread][i]));
      }
    }
  }
}

TEST(JournalStress, ALargeLogBlockSizeOfFourKilobytes) {
  const TestVolume& volume = MakeVolume("-b 4096 -J size=4", 24);
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  stack.Mount();
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint8_t round = 0; round < 100; ++round) {
        std::vector<BlockNumber> blocks;
        for (uint32_t i = 0; i < 60; ++i) blocks.push_back(volume.free_blocks[thread * 90 + (round + i) % 90]);
        const TransactionId id = stack.WriteBlocks(blocks, round);
        if (round % 10 == 0) {
          EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(stack.journal->Shutdown().ok());
  EXPECT_EQ(stack.ReadFromDevice(volume.free_blocks[(99 + 59) % 90])[0], 99);
}

}  // namespace
}  // namespace elidefs::core
