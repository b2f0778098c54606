// Recovery: logs written by debugfs and by us, compared with e2fsck block by block; damaged and hostile logs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "core/journal/log_format.h"
#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {
namespace {

using blockio::MemoryDevice;

const TestVolume& SmallVolume() {
  return MakeVolume("-b 1024 -J size=1", 6);
}

uint8_t* LogBlock(std::vector<uint8_t>& image, const TestVolume& volume, uint32_t log_block) {
  return image.data() + volume.LogBlockNumber(log_block) * volume.geometry.block_bytes;
}

void EditSuperBlock(std::vector<uint8_t>& image, const TestVolume& volume,
                    const std::function<void(JournalSuperBlock&)>& edit) {
  auto* raw = reinterpret_cast<JournalSuperBlock*>(LogBlock(image, volume, 0));
  edit(*raw);
  raw->s_checksum = 0;
  if ((raw->s_feature_incompat & (kJournalCsumV2 | kJournalCsumV3)) != 0) {
    raw->s_checksum = Crc32c(~0U, raw, sizeof(*raw));
  }
}

LogFormat FormatOf(std::vector<uint8_t>& image, const TestVolume& volume, LogChecksum checksum) {
  auto* raw = reinterpret_cast<JournalSuperBlock*>(LogBlock(image, volume, 0));
  LogFormat format;
  format.block_bytes = volume.geometry.block_bytes;
  format.is_64bit = (raw->s_feature_incompat & kJournal64Bit) != 0;
  format.checksum = checksum;
  std::memcpy(format.uuid, raw->s_uuid, 16);
  format.checksum_seed = Crc32c(~0U, raw->s_uuid, 16);
  return format;
}

// Three transactions of one block each, logged by us: descriptor, data, record; from log block 1 on.
std::vector<uint8_t> ImageWithThreeTransactions(const TestVolume& volume) {
  auto device = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  stack.Mount();
  for (uint8_t i = 1; i <= 3; ++i) {
    const TransactionId id = stack.WriteBlocks({volume.free_blocks[i]}, i);
    EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
  }
  stack.journal.reset();
  return device->bytes();
}

struct DebugfsCase {
  const char* mke2fs;
  const char* open;
};
class DebugfsLog : public testing::TestWithParam<DebugfsCase> {};

TEST_P(DebugfsLog, IsReplayedAsE2fsckDoes) {
  const TestVolume& volume = MakeVolume(GetParam().mke2fs, 16);
  const test_support::TempDirectory directory;
  std::vector<uint8_t> data(40 * volume.geometry.block_bytes);
  std::mt19937 random(5);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  const Be32 magic = kJournalMagic;
  std::memcpy(data.data() + 2 * volume.geometry.block_bytes, &magic, sizeof(magic));  // must be escaped
  test_support::WriteWholeFile(directory.File("data"), data);
  const auto& free = volume.free_blocks;
  std::string list;
  for (uint32_t i = 10; i < 50; ++i) absl::StrAppend(&list, i == 10 ? "" : ",", free[i]);
  const std::string file = directory.File("data");
  const std::vector<uint8_t> image = test_support::ChangeImage(
      volume.bytes, absl::StrCat(GetParam().open, "\njw -b ", list, " ", file, "\njw -b ", free[3], ",", free[4], " ",
                                 file, "\njw -r ", free[11], ",", free[3], " ", "\njw -b ", free[12], " ", file,
                                 "\njw -b ", free[3], " -r ", free[20], " ", file, "\njc\n"));
  const std::vector<uint8_t> expected = ReplayWithE2fsck(image, nullptr);
  EXPECT_FALSE(DifferingBlocks(image, expected, volume).empty()) << "e2fsck replayed nothing";
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  const RecoveryResult result = stack.Mount();
  EXPECT_TRUE(result.replayed);
  EXPECT_GE(result.transactions, 4U);
  EXPECT_GE(result.revoked, 2U);
  EXPECT_FALSE(result.ended_on_bad_checksum);
  EXPECT_EQ(DifferingBlocks(device->bytes(), expected, volume), std::vector<BlockNumber>());
  // And the log goes on working, and is accepted, after the takeover.
  EXPECT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({free[0]}, 9), nullptr), 0);
  EXPECT_TRUE(stack.journal->Shutdown().ok());
}

INSTANTIATE_TEST_SUITE_P(
    Versions, DebugfsLog,
    testing::Values(DebugfsCase{"-b 1024 -J size=1", "jo"}, DebugfsCase{"-b 1024 -J size=1", "jo -c"},
                    DebugfsCase{"-b 1024 -J size=1", "jo -c -v 2"}, DebugfsCase{"-b 1024 -J size=1 -O ^64bit", "jo -c"},
                    DebugfsCase{"-b 1024 -J size=1 -O ^64bit", "jo -c -v 2"},
                    DebugfsCase{"-b 1024 -J size=1 -O ^64bit", "jo"}, DebugfsCase{"-b 4096 -J size=4", "jo -c -v 3"}));

TEST(Recovery, ContinuesTheSequenceTwoBehindTheLastCommit) {
  const TestVolume& volume = SmallVolume();
  auto device = MemoryDevice::FromBytes(ImageWithThreeTransactions(volume), {.volatile_cache = true});
  Stack stack(device.get(), volume);
  EXPECT_EQ(stack.Mount().transactions, 3U);
  // A fresh log starts at 1: 1, 2, 3 were committed.
  EXPECT_EQ(static_cast<uint32_t>(stack.WriteBlocks({volume.free_blocks[0]}, 1)), 5U);
}

TEST(Recovery, SequenceNumbersWrap) {
  const TestVolume& volume = SmallVolume();
  std::vector<uint8_t> image = volume.bytes;
  EditSuperBlock(image, volume, [](JournalSuperBlock& raw) { raw.s_sequence = 0xFFFFFFFEU; });
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    for (uint8_t i = 1; i <= 5; ++i) {
      const TransactionId id = stack.WriteBlocks({volume.free_blocks[0], volume.free_blocks[i]}, i);
      ASSERT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
    }
  }
  const std::vector<uint8_t> expected = ReplayWithE2fsck(device->bytes(), nullptr);
  Stack again(device.get(), volume);
  EXPECT_EQ(again.Mount().transactions, 5U);
  EXPECT_TRUE(DifferingBlocks(device->bytes(), expected, volume).empty());
}

TEST(Recovery, DryRunFillsTheOverlayAndWritesNothing) {
  const TestVolume& volume = SmallVolume();
  const std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  absl::flat_hash_map<BlockNumber, std::vector<uint8_t>> overlay;
  const auto result = stack.journal->Recover(&overlay);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(overlay.size(), 3U);
  EXPECT_EQ(overlay[volume.free_blocks[2]], std::vector<uint8_t>(1024, 2));
  EXPECT_EQ(device->bytes(), image);
  EXPECT_FALSE(stack.journal->StartWriting().ok()) << "nothing was replayed";
}

TEST(Recovery, ABadBlockInTheMiddleEndsTheScanBeforeItAndTheLogIsWiped) {
  const TestVolume& volume = SmallVolume();
  // Descriptor, data and record of the second transaction.
  for (const uint32_t damaged : {4U, 5U, 6U}) {
    std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
    LogBlock(image, volume, damaged)[700] ^= 0x10U;
    auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    Stack stack(device.get(), volume);
    const RecoveryResult result = stack.Mount();
    EXPECT_EQ(result.transactions, 1U) << damaged;
    EXPECT_TRUE(result.ended_on_bad_checksum) << damaged;
    EXPECT_EQ(stack.ReadFromDevice(volume.free_blocks[1])[0], 1);
    EXPECT_EQ(stack.ReadFromDevice(volume.free_blocks[2]), BlockOf(volume.bytes, volume, volume.free_blocks[2]));
    for (uint32_t block = 1; block < 12; ++block) {
      EXPECT_EQ(*reinterpret_cast<const Be32*>(LogBlock(device->bytes(), volume, block)), 0U);
    }
  }
}

TEST(Recovery, AMissingRecordIsAnOrdinaryEnd) {
  const TestVolume& volume = SmallVolume();
  std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
  std::memset(LogBlock(image, volume, 9), 0, 1024);
  LogBlock(image, volume, 8)[3] ^= 1U;  // its data may be missing too
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  Stack stack(device.get(), volume);
  const RecoveryResult result = stack.Mount();
  EXPECT_EQ(result.transactions, 2U);
  EXPECT_FALSE(result.ended_on_bad_checksum);
}

TEST(Recovery, Version1Checksums) {
  const TestVolume& volume = SmallVolume();
  const test_support::TempFile data(std::vector<uint8_t>(1024, 0x66));
  const std::vector<uint8_t> base = test_support::ChangeImage(
      volume.bytes, absl::StrCat("jo\njw -b ", volume.free_blocks[0], " ", data.path(), "\njw -b ",
                                 volume.free_blocks[1], " ", data.path(), "\njc\n"));
  for (const bool damage : {false, true}) {
    std::vector<uint8_t> image = base;
    EditSuperBlock(image, volume, [](JournalSuperBlock& raw) { raw.s_feature_compat = kJournalCompatChecksum; });
    for (uint32_t transaction = 0; transaction < 2; ++transaction) {
      uint32_t crc = Crc32BigEndian(~0U, {LogBlock(image, volume, 1 + transaction * 3), 1024});
      crc = Crc32BigEndian(crc, {LogBlock(image, volume, 2 + transaction * 3), 1024});
      auto* record = reinterpret_cast<JournalCommitBlock*>(LogBlock(image, volume, 3 + transaction * 3));
      record->h_chksum_type = 1;
      record->h_chksum_size = 4;
      record->h_chksum[0] = crc;
    }
    if (damage) LogBlock(image, volume, 5)[100] ^= 1U;
    auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    Stack stack(device.get(), volume);
    const RecoveryResult result = stack.Mount();
    EXPECT_EQ(result.transactions, damage ? 1U : 2U);
    EXPECT_EQ(result.ended_on_bad_checksum, damage);
  }
}

TEST(Recovery, RefusesBlocksOutsideTheVolumeOrInsideTheJournal) {
  const TestVolume& volume = SmallVolume();
  for (const BlockNumber target : {volume.geometry.block_count, BlockNumber{1} << 40U, volume.LogBlockNumber(3)}) {
    std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
    const LogFormat format = FormatOf(image, volume, LogChecksum::kV3);
    const absl::Span<const uint8_t> logged(LogBlock(image, volume, 5), 1024);
    std::vector<uint8_t> descriptor(1024);
    const LogTag tag{target, false, TagChecksum(format, 2, logged)};
    EncodeDescriptor(format, 2, {&tag, 1}, descriptor.data());
    std::memcpy(LogBlock(image, volume, 4), descriptor.data(), 1024);
    auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    Stack stack(device.get(), volume);
    const auto result = stack.journal->Recover(nullptr);
    EXPECT_EQ(StatusToErrno(result.status()), EUCLEAN);
    EXPECT_EQ(device->bytes(), image) << "nothing may be written before the scan is done";
  }
}

TEST(Recovery, CanBeInterruptedAndRepeated) {
  const TestVolume& volume = SmallVolume();
  const std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
  auto reference = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  Stack(reference.get(), volume).Mount();
  for (int survive = 0; survive < 3; ++survive) {
    auto memory = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    std::atomic<int> left{survive};
    auto faulty = blockio::FaultDevice::Create(memory.get(), [&](const DeviceRequest& request) {
      const bool fail = request.operation == Operation::kWrite && left.fetch_sub(1) <= 0;
      return blockio::FaultDevice::Verdict{.error = fail ? EIO : 0};
    });
    {
      Stack stack(faulty.get(), volume);
      EXPECT_EQ(StatusToErrno(stack.journal->Recover(nullptr).status()), survive < 1 ? EIO : 0);
    }
    Stack again(memory.get(), volume);
    EXPECT_EQ(again.Mount().transactions, 3U);
    EXPECT_TRUE(DifferingBlocks(memory->bytes(), reference->bytes(), volume).empty());
  }
}

TEST(Recovery, FastCommitsThatBelongToTheLogAreRefused) {
  const TestVolume& volume = MakeVolume("-b 1024 -J size=4 -O fast_commit", 24);
  std::vector<uint8_t> image = volume.bytes;
  // The feature as the kernel sets it when it first mounts such a volume.
  EditSuperBlock(image, volume, [](JournalSuperBlock& raw) {
    raw.s_feature_incompat = raw.s_feature_incompat | kJournalFastCommit;
    raw.s_num_fc_blks = 256;
  });
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  TransactionId id = 0;
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    id = stack.WriteBlocks({volume.free_blocks[0]}, 1);
    ASSERT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
    EXPECT_EQ(stack.journal->Stats().log_blocks, volume.LogLength() - 256 - 1);
  }
  for (const uint32_t behind : {1U, 9U}) {
    std::vector<uint8_t> with_area = device->bytes();
    uint8_t* area = LogBlock(with_area, volume, volume.LogLength() - 256 + 1);
    const Le16 tag = 9;
    const Le16 length = 8;
    const Le32 transaction = static_cast<uint32_t>(id) + behind;
    std::memcpy(area, &tag, 2);
    std::memcpy(area + 2, &length, 2);
    std::memcpy(area + 8, &transaction, 4);
    auto copy = MemoryDevice::FromBytes(with_area, {.volatile_cache = true});
    Stack stack(copy.get(), volume);
    const auto result = stack.journal->Recover(nullptr);
    EXPECT_EQ(StatusToErrno(result.status()), behind == 1 ? EOPNOTSUPP : 0) << result.status();
    if (behind == 1) {
      EXPECT_NE(result.status().message().find("e2fsck"), absl::string_view::npos);
      EXPECT_EQ(copy->bytes(), with_area);
    }
  }
}

TEST(JournalSuperblock, ImpossibleFieldsAreRefused) {
  const TestVolume& volume = SmallVolume();
  const std::vector<uint8_t> image = ImageWithThreeTransactions(volume);
  const struct {
    std::function<void(JournalSuperBlock&)> edit;
    int error;
  } cases[] = {
      {[](JournalSuperBlock& raw) { raw.s_header.h_magic = 1U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_header.h_blocktype = 2U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_blocksize = 2048U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_maxlen = 1025U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_maxlen = 20U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_first = 0U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_first = 1024U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_start = 1024U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_checksum_type = 1; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_feature_incompat = 0x18U; }, EUCLEAN},
      {[](JournalSuperBlock& raw) { raw.s_feature_incompat = 0x110U; }, EOPNOTSUPP},
      {[](JournalSuperBlock& raw) { raw.s_feature_ro_compat = 1U; }, EOPNOTSUPP},
      {[](JournalSuperBlock&) {}, 0},
  };
  for (const auto& test : cases) {
    std::vector<uint8_t> edited = image;
    EditSuperBlock(edited, volume, test.edit);
    auto device = MemoryDevice::FromBytes(edited, {.volatile_cache = true});
    const Stack stack(device.get(), volume);
    EXPECT_EQ(StatusToErrno(stack.open_status), test.error) << stack.open_status << " case " << (&test - cases);
  }
  std::vector<uint8_t> edited = image;
  LogBlock(edited, volume, 0)[0x30] ^= 1U;  // the checksum does not fit the content
  auto device = MemoryDevice::FromBytes(edited, {.volatile_cache = true});
  EXPECT_EQ(StatusToErrno(Stack(device.get(), volume).open_status), EUCLEAN);
}

TEST(JournalSuperblock, KeepsWhatIsNotOurs) {
  const TestVolume& volume = MakeVolume("-b 4096 -J size=4", 24);
  std::vector<uint8_t> image = volume.bytes;
  std::memset(LogBlock(image, volume, 0) + 1024, 0x77, 3072);
  EditSuperBlock(image, volume, [](JournalSuperBlock& raw) {
    raw.s_users[3] = 9;
    raw.s_nr_users = 1;
    raw.s_max_trans_data = 5;
  });
  auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
  {
    Stack stack(device.get(), volume);
    stack.Mount();
    stack.WriteBlocks({volume.free_blocks[0]}, 1);
    EXPECT_TRUE(stack.journal->Shutdown().ok());
  }
  const uint8_t* block = LogBlock(device->bytes(), volume, 0);
  EXPECT_EQ(block[1024], 0x77);
  EXPECT_EQ(block[4095], 0x77);
  const auto* raw = reinterpret_cast<const JournalSuperBlock*>(block);
  EXPECT_EQ(raw->s_users[3], 9);
  EXPECT_EQ(raw->s_max_trans_data, 5U);
}

TEST(Recovery, DamagedLogsNeverEscape) {
  const TestVolume& volume = SmallVolume();
  const std::vector<uint8_t> sound = ImageWithThreeTransactions(volume);
  std::mt19937 random(42);
#ifdef ELIDEFS_SANITIZED
  constexpr int kRounds = 60;  // each copies the image several times
#else
  constexpr int kRounds = 400;
#endif
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint8_t> image = sound;
    const bool unchecked = round % 2 == 0;  // the structure checks alone must hold too
    if (unchecked) {
      EditSuperBlock(image, volume, [](JournalSuperBlock& raw) { raw.s_feature_incompat = kJournal64Bit | 1U; });
    }
    for (int flip = 0; flip < 6; ++flip) {
      LogBlock(image, volume, random() % 10)[random() % 1024] ^= static_cast<uint8_t>(1U << (random() % 8));
    }
    auto device = MemoryDevice::FromBytes(image, {.volatile_cache = true});
    Stack stack(device.get(), volume);
    if (stack.journal == nullptr) continue;
    const auto result = stack.journal->Recover(nullptr);
    if (!result.ok()) continue;
    // Whatever was replayed, the journal itself is as it was.
    for (uint32_t block = 0; block < volume.LogLength(); ++block) {
      ASSERT_EQ(std::memcmp(LogBlock(device->bytes(), volume, block), LogBlock(image, volume, block), 1024), 0);
    }
  }
}

}  // namespace
}  // namespace elidefs::core
