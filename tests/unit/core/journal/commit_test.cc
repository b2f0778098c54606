// Commits: what reaches the log, what waits for what, and what each commit costs in flushes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/ondisk/journal_layout.h"
#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {
namespace {

using blockio::MemoryDevice;

const TestVolume& SmallVolume() {
  return MakeVolume("-b 1024 -J size=1", 6);
}

JournalSuperBlock SuperBlockOf(MemoryDevice& device, const TestVolume& volume) {
  JournalSuperBlock raw;
  std::memcpy(&raw, device.bytes().data() + volume.log_map[0].start * volume.geometry.block_bytes, sizeof(raw));
  return raw;
}

struct CommitCase {
  const char* mke2fs;
  uint64_t size_mib;
};
class CommitOnVolume : public testing::TestWithParam<CommitCase> {};

// Written by us, read by e2fsck and debugfs.
TEST_P(CommitOnVolume, E2fsckReplaysWhatWeLogged) {
  const TestVolume& volume = MakeVolume(GetParam().mke2fs, GetParam().size_mib);
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  const uint32_t magic_block = 7;
  {
    Stack stack(device.get(), volume);
    EXPECT_FALSE(stack.Mount().replayed);
    TransactionId last = 0;
    std::vector<BlockNumber> many(volume.free_blocks.begin() + 10, volume.free_blocks.begin() + 110);
    for (uint8_t round = 1; round < 5; ++round) {
      last = stack.WriteBlocks({volume.free_blocks[0], volume.free_blocks[round]}, round);
      ASSERT_EQ(stack.journal->CommitBlocking(last, nullptr), 0);
    }
    last = stack.WriteBlocks(many, 0x5A);
    {
      auto handle = stack.journal->Start(2);
      ASSERT_TRUE(handle.ok());
      auto buffer = stack.cache->GetZeroed(volume.free_blocks[magic_block]);
      handle->Dirty(*buffer);
      std::memset((*buffer)->data(), 0x33, volume.geometry.block_bytes);
      *(*buffer)->As<Be32>() = kJournalMagic;
      handle->Revoke(volume.free_blocks[1]);
      last = handle->transaction();
    }
    ASSERT_EQ(stack.journal->CommitBlocking(last, nullptr), 0);
  }
  std::string output;
  std::vector<uint8_t> replayed = ReplayWithE2fsck(device->bytes(), &output);
  EXPECT_NE(output.find("recovering journal"), std::string::npos) << output;
  EXPECT_EQ(BlockOf(replayed, volume, volume.free_blocks[0])[0], 4);
  EXPECT_NE(BlockOf(replayed, volume, volume.free_blocks[1])[0], 1) << "revoked";
  EXPECT_EQ(BlockOf(replayed, volume, volume.free_blocks[2])[9], 2);
  EXPECT_EQ(BlockOf(replayed, volume, volume.free_blocks[109])[100], 0x5A);
  const std::vector<uint8_t> escaped = BlockOf(replayed, volume, volume.free_blocks[magic_block]);
  EXPECT_EQ(escaped[0], 0xC0);
  EXPECT_EQ(escaped[4], 0x33);

  const test_support::TempFile image(device->bytes());
  const CommandResult dump = RunCommand("debugfs -R 'logdump -a' " + image.path());
  EXPECT_NE(dump.output.find("Revoke FS block"), std::string::npos) << dump.output;
  EXPECT_EQ(dump.output.find("corrupt"), std::string::npos) << dump.output;

  // Our own replay of the same log: the same blocks.
  auto ours = MemoryDevice::FromBytes(device->bytes(), {.volatile_cache = true});
  Stack again(ours.get(), volume);
  const RecoveryResult result = again.Mount();
  EXPECT_TRUE(result.replayed);
  EXPECT_EQ(result.transactions, 5U);
  EXPECT_EQ(result.revoked, 1U);
  EXPECT_FALSE(result.ended_on_bad_checksum);
  EXPECT_TRUE(DifferingBlocks(ours->bytes(), replayed, volume).empty());
}

INSTANTIATE_TEST_SUITE_P(Volumes, CommitOnVolume,
                         testing::Values(CommitCase{"-b 1024 -J size=1", 6}, CommitCase{"-b 4096 -J size=4", 24},
                                         CommitCase{"-b 1024 -J size=1 -O ^64bit", 6},
                                         CommitCase{"-b 2048 -J size=2 -O ^metadata_csum,^64bit", 12}));

TEST(Journal, CleanShutdownLeavesAnEmptyLogThatE2fsckAccepts) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  const uint32_t before = SuperBlockOf(*device, volume).s_sequence;
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    stack.WriteBlocks({volume.free_blocks[0], volume.free_blocks[1]}, 0x11);
    EXPECT_TRUE(stack.journal->Shutdown().ok());
    EXPECT_FALSE(stack.journal->Start(1).ok());
  }
  const JournalSuperBlock raw = SuperBlockOf(*device, volume);
  EXPECT_EQ(raw.s_start, 0U);
  EXPECT_EQ(raw.s_sequence, before + 1);
  EXPECT_NE(raw.s_feature_incompat & kJournalCsumV3, 0U);
  EXPECT_NE(raw.s_feature_incompat & kJournal64Bit, 0U);
  EXPECT_EQ(BlockOf(device->bytes(), volume, volume.free_blocks[1])[0], 0x11);
  const CommandResult check = test_support::CheckImage(device->bytes());
  EXPECT_EQ(check.exit_code, 0) << check.output;
  // And a mount of it replays nothing and goes on with the sequence.
  Stack again(device.get(), volume);
  EXPECT_FALSE(again.Mount().replayed);
  EXPECT_EQ(static_cast<uint32_t>(again.WriteBlocks({volume.free_blocks[0]}, 1)), before + 1);
}

TEST(Journal, SerialCommitsCostTwoFlushesWithoutFuaAndOneWithIt) {
  for (const bool fua : {false, true}) {
    const TestVolume& volume = SmallVolume();
    auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true, .native_fua = fua});
    Stack stack(device.get(), volume);
    stack.Mount();
    const uint64_t before = device->flushes();
    for (uint8_t i = 0; i < 10; ++i) {
      const TransactionId id = stack.WriteBlocks({volume.free_blocks[i]}, i);
      CommitOutcome outcome;
      ASSERT_EQ(stack.journal->CommitBlocking(id, &outcome), 0);
      EXPECT_EQ(outcome, CommitOutcome::kStarted);
      ASSERT_EQ(stack.journal->CommitBlocking(id, &outcome), 0);
      EXPECT_EQ(outcome, CommitOutcome::kDurable);
    }
    EXPECT_EQ(device->flushes() - before, fua ? 10U : 20U);
    const JournalStats stats = stack.journal->Stats();
    EXPECT_EQ(stats.commits, 10U);
    EXPECT_EQ(stats.commit_pre_issued, 10U);
    EXPECT_EQ(fua ? stats.commit_post_fua : stats.commit_post_issued, 10U);
  }
}

TEST(Journal, NoFlushWithoutAVolatileCache) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = false});
  Stack stack(device.get(), volume);
  stack.Mount();
  for (uint8_t i = 0; i < 10; ++i) {
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[i]}, i), nullptr), 0);
  }
  EXPECT_EQ(device->flushes(), 0U);
  EXPECT_EQ(stack.journal->Stats().commit_pre_elided, 10U);
}

TEST(Journal, EmptyTransactionsNeedNoInputOrOutput) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  stack.Mount();
  const uint64_t before = device->flushes();
  auto handle = stack.journal->Start(5);
  ASSERT_TRUE(handle.ok());
  const TransactionId id = handle->transaction();
  CommitOutcome outcome;
  EXPECT_EQ(stack.journal->CommitBlocking(id, &outcome), 0);  // although the handle is open
  EXPECT_EQ(outcome, CommitOutcome::kDurable);
  EXPECT_TRUE(stack.journal->IsDurable(id));
  handle->Stop();
  EXPECT_EQ(device->flushes(), before);
  EXPECT_EQ(stack.journal->Stats().commits, 0U);
  EXPECT_EQ(stack.WriteBlocks({volume.free_blocks[0]}, 1), id);
}

TEST(Journal, TransactionsAreCommittedByAge) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume, {.commit_interval_ms = 20});
  stack.Mount();
  const TransactionId id = stack.WriteBlocks({volume.free_blocks[0]}, 1);
  for (int i = 0; i < 500 && !stack.journal->IsDurable(id); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(stack.journal->IsDurable(id));
}

TEST(Journal, WrapsManyTimesOnTheSmallestLog) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  JournalStats stats;
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    for (uint32_t round = 0; round < 200; ++round) {
      std::vector<BlockNumber> blocks;
      for (uint32_t i = 0; i < 100; ++i) blocks.push_back(volume.free_blocks[(round * 7 + i) % 200]);
      const TransactionId id = stack.WriteBlocks(blocks, static_cast<uint8_t>(round));
      if (round % 3 == 0) {
        ASSERT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
      }
    }
    ASSERT_EQ(stack.journal->CommitBlocking(stack.journal->Newest(), nullptr), 0);
    stats = stack.journal->Stats();
    EXPECT_GT(stats.tail_updates, 10U);
    EXPECT_EQ(stats.log_blocks, 1023U);
    // A crash here: both replays agree, wherever the log begins.
    stack.queue->Freeze();  // the checkpoint may be writing
    const std::vector<uint8_t> image = device->bytes();
    stack.queue->Unfreeze();
    const std::vector<uint8_t> replayed = ReplayWithE2fsck(image, nullptr);
    auto ours = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    Stack again(ours.get(), volume);
    again.Mount();
    EXPECT_TRUE(DifferingBlocks(ours->bytes(), replayed, volume).empty());
    for (uint32_t i = 0; i < 100; ++i) {
      EXPECT_EQ(again.ReadFromDevice(volume.free_blocks[(199 * 7 + i) % 200])[0], 199);
    }
    EXPECT_TRUE(stack.journal->Shutdown().ok());
  }
  EXPECT_EQ(BlockOf(device->bytes(), volume, volume.free_blocks[(199 * 7) % 200])[0], 199);
}

TEST(Journal, CreditsAreReturnedAndBounded) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  stack.Mount();
  const uint32_t most = stack.journal->max_handle_credits();
  EXPECT_FALSE(stack.journal->Start(most + 1).ok());
  auto first = stack.journal->Start(most);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->Extend(1000));
  std::atomic<bool> second_got{false};
  std::thread second([&] {
    auto handle = stack.journal->Start(most);
    auto third = stack.journal->Start(0);
    second_got = handle.ok();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  first->Stop();
  second.join();
  EXPECT_TRUE(second_got);
  // Nothing was dirtied, so none of this was ever committed.
  EXPECT_EQ(stack.journal->Stats().commits, 0U);
  auto handle = stack.journal->Start(2);
  auto buffer = stack.cache->GetZeroed(volume.free_blocks[0]);
  handle->Dirty(*buffer);
  handle->Dirty(*buffer);
  EXPECT_EQ(handle->credits_left(), 1U);
  EXPECT_TRUE(handle->Extend(3));
  EXPECT_EQ(handle->credits_left(), 4U);
  handle->Revoke(volume.free_blocks[0]);
  EXPECT_EQ(handle->credits_left(), 4U) << "the block's credit pays for its revoke";
}

TEST(Journal, FreedBlocksAreHandedOutWhenDurable) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  std::vector<std::pair<TransactionId, BlockNumber>> freed;
  JournalOptions options;
  options.on_durable = [&](TransactionId id, const std::vector<BlockRange>& ranges) {
    for (const BlockRange& range : ranges) freed.emplace_back(id, range.start);
  };
  Stack stack(device.get(), volume, options);
  stack.Mount();
  TransactionId id = 0;
  {
    auto handle = stack.journal->Start(3);
    handle->Revoke(volume.free_blocks[3]);
    handle->ReleaseWhenDurable({volume.free_blocks[3], 1});
    id = handle->transaction();
  }
  EXPECT_TRUE(freed.empty());
  ASSERT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
  ASSERT_EQ(freed.size(), 1U);
  EXPECT_EQ(freed[0], std::make_pair(id, volume.free_blocks[3]));
}

TEST(Journal, PinnedBlocksAreNotReadFromTheDeviceTooEarly) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  stack.Mount();
  for (uint8_t i = 0; i < 20; ++i) {
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[i]}, i + 1U), nullptr), 0);
  }
  // Far more blocks than a small cache would keep.
  for (BlockNumber block = 0; block < volume.geometry.block_count; ++block) {
    (void)stack.cache->Read(block, nullptr);
  }
  for (uint8_t i = 0; i < 20; ++i) {
    EXPECT_EQ((*stack.cache->Read(volume.free_blocks[i], nullptr))->data()[0], i + 1);
  }
}

}  // namespace
}  // namespace elidefs::core
