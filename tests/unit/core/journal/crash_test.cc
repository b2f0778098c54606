// Power cuts at the events of small histories, the structural rule of D3, and the planted bugs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "core/ondisk/journal_layout.h"
#include "tests/unit/core/journal/crash_model.h"

namespace elidefs::core {
namespace {

using blockio::DeviceEvent;
using blockio::MemoryDevice;
using blockio::VolatileCacheDevice;

// Each cut copies a whole image, which sanitizers make slow.
#ifdef ELIDEFS_SANITIZED
constexpr size_t kCuts = 15;
#else
constexpr size_t kCuts = 200;
#endif

const TestVolume& SmallVolume() {
  return MakeVolume("-b 1024 -J size=1", 6);
}

class CrashHistory : public testing::TestWithParam<CrashHistoryOptions> {};

TEST_P(CrashHistory, EveryCutLeavesAPrefixWithEverythingAcknowledged) {
  CrashModel model(SmallVolume(), GetParam());
  model.RunHistory();
  std::string first;
  const size_t step = std::max<size_t>(1, model.event_count() / kCuts);
  EXPECT_EQ(model.CountViolations(step, &first), 0U) << first;
}

INSTANTIATE_TEST_SUITE_P(
    Histories, CrashHistory,
    testing::Values(CrashHistoryOptions{.seed = 1}, CrashHistoryOptions{.seed = 2, .wait_every = 1},
                    CrashHistoryOptions{.seed = 3, .native_fua = true},
                    CrashHistoryOptions{.seed = 4, .magic_content = true},
                    // About five times around the log: checkpoints and tail moves between the cuts.
                    CrashHistoryOptions{
                        .seed = 5, .transactions = 120, .blocks_per_transaction = 100, .working_set_blocks = 80},
                    CrashHistoryOptions{.seed = 6,
                                        .transactions = 120,
                                        .blocks_per_transaction = 100,
                                        .working_set_blocks = 120,
                                        .native_fua = true}));

// D3 in the history itself: when a record is submitted, each log block of its transaction had completed before the
// dispatch of a flush that has succeeded. Returns how many records break it.
uint32_t RecordsWithoutPreflush(const VolatileCacheDevice& device, const TestVolume& volume) {
  struct Flush {
    size_t dispatched = 0;
    size_t completed = 0;
  };
  std::map<uint64_t, Flush> flushes;
  std::map<uint64_t, size_t> completed_at;
  std::vector<uint64_t> log_writes;  // since the last record
  uint32_t wrong = 0;
  for (size_t i = 0; i < device.event_count(); ++i) {
    const DeviceEvent& event = device.event(i);
    if (event.kind == DeviceEvent::Kind::kFlushDispatched) flushes[event.id].dispatched = i;
    if (event.kind == DeviceEvent::Kind::kFlushCompleted) flushes[event.id].completed = i;
    if (event.kind == DeviceEvent::Kind::kWriteCompleted) completed_at[event.id] = i;
    if (event.kind != DeviceEvent::Kind::kWriteSubmitted) continue;
    const BlockNumber block = event.offset_bytes / volume.geometry.block_bytes;
    if (!volume.IsInLog(block) || block == volume.LogBlockNumber(0)) continue;
    JournalHeader header;
    std::memcpy(&header, event.data.data(), sizeof(header));
    const bool record = event.data.size() == volume.geometry.block_bytes && header.h_magic == kJournalMagic &&
                        header.h_blocktype == uint32_t{kJournalCommit};
    if (!record) {
      log_writes.push_back(event.id);
      continue;
    }
    size_t newest = 0;
    bool all_completed = true;
    for (const uint64_t id : log_writes) {
      const auto completed = completed_at.find(id);
      all_completed = all_completed && completed != completed_at.end();
      if (completed != completed_at.end()) newest = std::max(newest, completed->second);
    }
    bool covered = false;
    for (const auto& [id, flush] : flushes) {
      covered = covered || (flush.completed != 0 && flush.completed < i && flush.dispatched > newest);
    }
    if (!all_completed || !covered) ++wrong;
    log_writes.clear();
  }
  return wrong;
}

TEST(CommitOrder, NoRecordBeforeItsLogBlocksAreDurable) {
  for (const bool fua : {false, true}) {
    CrashModel model(SmallVolume(), {.seed = 11, .transactions = 60, .native_fua = fua});
    model.RunHistory();
    EXPECT_EQ(RecordsWithoutPreflush(model.device(), SmallVolume()), 0U);
  }
}

TEST(planted, commit_without_preflush_in_the_journal) {
  CrashHistoryOptions options{.seed = 21};
  options.planted.commit_without_preflush = true;
  CrashModel model(SmallVolume(), options);
  model.RunHistory();
  std::string first;
  EXPECT_GT(RecordsWithoutPreflush(model.device(), SmallVolume()), 0U);
  EXPECT_GT(model.CountViolations(1, &first), 0U);
}

TEST(planted, elide_pre_despite_log) {
  CrashHistoryOptions options{.seed = 22, .wait_every = 1};
  options.planted.elide_pre_despite_log = true;
  const TestVolume& volume = SmallVolume();
  auto device = VolatileCacheDevice::Create(volume.bytes, {});
  JournalOptions journal_options;
  journal_options.planted = options.planted;
  Stack stack(device.get(), volume, journal_options);
  stack.Mount();
  for (uint8_t i = 0; i < 4; ++i) {
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[i]}, i), nullptr), 0);
  }
  stack.journal.reset();
  EXPECT_GT(RecordsWithoutPreflush(*device, volume), 0U);
}

// Acknowledged commits fill half the log; the last of them wakes the background checkpoint, and no flush comes after
// it. Returns how many cuts lose a block.
uint32_t LossesBehindALazyCheckpoint(const PlantedBugs& planted) {
  constexpr uint8_t kTransactions = 10;
  constexpr size_t kBlocks =
      40;  // with descriptor and record 42; the first takes 113: the last makes it more than half of 1023
  constexpr size_t kFirstBlocks = 110;
  const TestVolume& volume = SmallVolume();
  // With FUA the last flush is the PRE of the last commit, and nothing wakes the checkpoint before it.
  auto device = VolatileCacheDevice::Create(volume.bytes, {.native_fua = true});
  JournalOptions options;
  options.planted = planted;
  const auto blocks_of = [&](uint8_t number) {
    const size_t first = number == 0 ? 0 : kFirstBlocks + (number % 6) * kBlocks;
    const size_t count = number == 0 ? kFirstBlocks : kBlocks;
    return std::vector<BlockNumber>(volume.free_blocks.begin() + static_cast<std::ptrdiff_t>(first),
                                    volume.free_blocks.begin() + static_cast<std::ptrdiff_t>(first + count));
  };
  {
    Stack stack(device.get(), volume, options);
    stack.Mount();
    for (uint8_t number = 0; number <= kTransactions; ++number) {
      if (number == kTransactions) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const TransactionId id = stack.WriteBlocks(blocks_of(number), static_cast<uint8_t>(number + 1));
      EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
    }
    EXPECT_GT(stack.journal->Stats().log_blocks_used, stack.journal->Stats().log_blocks / 2);
    const auto home = [&] { return stack.journal->Stats().checkpointed_blocks; };
    for (int i = 0; i < 5000 && home() < kFirstBlocks; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(home(), kFirstBlocks);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time to move the tail, too early or not at all
    EXPECT_EQ(stack.journal->Stats().tail_updates != 0, planted.tail_before_checkpoint);
  }
  uint32_t losses = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto mode = VolatileCacheDevice::Cut::kRandom;
    auto after = MemoryDevice::FromBytes(device->ImageAfterCut(device->event_count(), mode, seed), {});
    Stack stack(after.get(), volume);
    bool lost = !stack.journal->Recover(nullptr).ok();
    for (const BlockNumber block : blocks_of(0)) lost = lost || stack.ReadFromDevice(block)[9] != 1;
    losses += lost ? 1U : 0U;
  }
  return losses;
}

TEST(planted, tail_before_checkpoint) {
  EXPECT_EQ(LossesBehindALazyCheckpoint({}), 0U);
  EXPECT_GT(LossesBehindALazyCheckpoint({.tail_before_checkpoint = true}), 0U);
}

TEST(planted, checksum_before_escape) {
  CrashHistoryOptions options{.seed = 4, .magic_content = true};
  options.planted.checksum_before_escape = true;
  CrashModel model(SmallVolume(), options);
  model.RunHistory();
  std::string first;
  EXPECT_GT(model.CountViolations(10, &first), 0U);
}

// Two lives of one log. The second life's only transaction is as long as the first of the first life, so that the stale
// second transaction lies exactly behind it.
uint8_t ContentAfterTwoLives(const PlantedBugs& planted) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  JournalOptions options;
  options.planted = planted;
  {
    Stack stack(device.get(), volume, options);
    stack.Mount();
    for (uint8_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[0]}, i), nullptr), 0);
    }
  }
  {
    Stack stack(device.get(), volume, options);
    stack.Mount();
    EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[0]}, 9), nullptr), 0);
  }
  Stack stack(device.get(), volume);
  stack.Mount();
  return stack.ReadFromDevice(volume.free_blocks[0])[0];
}

TEST(planted, reset_sequence) {
  EXPECT_EQ(ContentAfterTwoLives({}), 9);
  EXPECT_NE(ContentAfterTwoLives({.reset_sequence = true}), 9);
}

// A metadata block is freed and its block becomes file data, which no replay may overwrite.
std::string ReuseAsData(const PlantedBugs& planted, bool reordered) {
  const TestVolume& volume = SmallVolume();
  auto device = VolatileCacheDevice::Create(volume.bytes, {.reorder_seed = reordered ? 3U : 0U});
  const BlockNumber block = volume.free_blocks[0];
  const std::vector<uint8_t> data(1024, 0xDA);
  constexpr uint64_t kDataDurable = 1;
  {
    std::atomic<bool> freed{false};
    JournalOptions options;
    options.planted = planted;
    options.on_durable = [&](TransactionId, const std::vector<BlockRange>& ranges) {
      freed = freed || !ranges.empty();
    };
    Stack stack(device.get(), volume, options);
    stack.Mount();
    EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({block, volume.free_blocks[1]}, 1), nullptr), 0);
    TransactionId id = 0;
    {
      auto handle = stack.journal->Start(4);
      auto other = stack.cache->GetZeroed(volume.free_blocks[2]);
      handle->Dirty(*other);
      handle->Revoke(block);
      handle->ReleaseWhenDurable({block, 1});
      id = handle->transaction();
    }
    EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
    EXPECT_TRUE(freed);
    auto* memory = static_cast<uint8_t*>(std::aligned_alloc(4096, 4096));
    std::memcpy(memory, data.data(), data.size());
    blockio::Ticket need = blockio::kNoNeed;
    EXPECT_EQ(stack.queue->Write(block * 1024, memory, 1024, &need), 0);
    std::free(memory);
    EXPECT_EQ(stack.queue->ledger().AwaitBlocking(need, nullptr), 0);
    device->Mark(kDataDurable);
    for (uint8_t i = 0; i < 3; ++i) {
      EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[1]}, i), nullptr), 0);
    }
    // Enough to push the log past the checkpoint's threshold.
    std::vector<BlockNumber> many(volume.free_blocks.begin() + 10, volume.free_blocks.begin() + 110);
    for (uint8_t i = 0; i < 12; ++i) {
      EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks(many, i), nullptr), 0);
    }
  }
  bool durable = false;
  const size_t step = std::max<size_t>(1, device->event_count() / kCuts);
  for (size_t index = 0; index <= device->event_count(); ++index) {
    for (const auto mode :
         {VolatileCacheDevice::Cut::kDropAll, VolatileCacheDevice::Cut::kKeepAll, VolatileCacheDevice::Cut::kRandom}) {
      if (!durable || index % step != 0) break;
      auto after = MemoryDevice::FromBytes(device->ImageAfterCut(index, mode, index), {.volatile_cache = true});
      Stack stack(after.get(), volume);
      if (!stack.journal->Recover(nullptr).ok()) return "recovery failed";
      if (stack.ReadFromDevice(block) != data) return "data overwritten, cut at " + std::to_string(index);
    }
    if (index < device->event_count()) durable = durable || device->event(index).kind == DeviceEvent::Kind::kMark;
  }
  return durable ? "" : "never marked";
}

TEST(Revoke, DataThatReusesAMetadataBlockSurvives) {
  EXPECT_EQ(ReuseAsData({}, false), "");
  EXPECT_EQ(ReuseAsData({}, true), "");
}

TEST(planted, skip_revoke_in_the_journal) {
  EXPECT_NE(ReuseAsData({.skip_revoke = true}, false), "");
}

TEST(Revoke, JournallingAgainCancelsOrOverridesIt) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  const BlockNumber block = volume.free_blocks[0];
  const BlockNumber other = volume.free_blocks[1];
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({block, other}, 1), nullptr), 0);
    {
      auto handle = stack.journal->Start(4);
      handle->Revoke(block);
      handle->Revoke(other);
      auto buffer = stack.cache->GetZeroed(block);  // again metadata, in the same transaction
      handle->Dirty(*buffer);
      std::memset((*buffer)->data(), 2, 1024);
    }
    ASSERT_EQ(stack.journal->CommitBlocking(stack.journal->Newest(), nullptr), 0);
    EXPECT_EQ(stack.journal->Stats().revoked_blocks, 1U);
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({other}, 3), nullptr), 0);  // in a later one
  }
  const std::vector<uint8_t> expected = ReplayWithE2fsck(device->bytes(), nullptr);
  Stack again(device.get(), volume);
  const RecoveryResult result = again.Mount();
  EXPECT_EQ(result.revoked, 1U);
  EXPECT_EQ(again.ReadFromDevice(block)[0], 2);
  EXPECT_EQ(again.ReadFromDevice(other)[0], 3);
  EXPECT_TRUE(DifferingBlocks(device->bytes(), expected, volume).empty());
}

// After a replay the old log may be overwritten only when no superblock on the device can start it again.
TEST(Recovery, TheFirstCommitAfterAReplayCanBeCutAnywhere) {
  const TestVolume& volume = SmallVolume();
  std::vector<uint8_t> replayable;
  {
    auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
    Stack stack(device.get(), volume);
    stack.Mount();
    for (uint8_t i = 1; i <= 4; ++i) {
      ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[0]}, i), nullptr), 0);
    }
    stack.journal.reset();
    replayable = device->bytes();
  }
  auto device = VolatileCacheDevice::Create(replayable, {});
  // Long enough to lie over several old transactions: a replay of the first one alone would go back in time.
  const std::vector<BlockNumber> later(volume.free_blocks.begin() + 1, volume.free_blocks.begin() + 7);
  {
    Stack stack(device.get(), volume);
    ASSERT_TRUE(stack.journal->Recover(nullptr).ok());
    stack.cache->DropAll();
    ASSERT_TRUE(stack.journal->StartWriting().ok());  // and no flush by the caller
    ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks(later, 7), nullptr), 0);
  }
  for (size_t index = 0; index <= device->event_count(); ++index) {
    for (uint64_t seed = 0; seed < (kCuts + 1) / 3; ++seed) {
      const auto mode = seed == 0   ? VolatileCacheDevice::Cut::kDropAll
                        : seed == 1 ? VolatileCacheDevice::Cut::kKeepAll
                                    : VolatileCacheDevice::Cut::kRandom;
      auto after = MemoryDevice::FromBytes(device->ImageAfterCut(index, mode, seed), {.volatile_cache = true});
      Stack stack(after.get(), volume);
      ASSERT_TRUE(stack.journal->Recover(nullptr).ok());
      ASSERT_EQ(stack.ReadFromDevice(volume.free_blocks[0])[0], 4) << "cut at " << index << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace elidefs::core
