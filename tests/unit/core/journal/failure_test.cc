// Every failing device operation aborts the journal once, releases waiters with EIO and leaves a recoverable log.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "core/ondisk/journal_layout.h"
#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {
namespace {

using blockio::FaultDevice;
using blockio::MemoryDevice;

const TestVolume& SmallVolume() {
  return MakeVolume("-b 1024 -J size=1", 6);
}

enum class Target : uint8_t { kFlush, kLog, kRecord, kSuperblock, kHome };

struct Faulty {
  explicit Faulty(const TestVolume& test_volume) : volume(test_volume) {
    memory = MemoryDevice::FromBytes(volume.bytes, {.volatile_cache = true});
    device = FaultDevice::Create(memory.get(), [this](const DeviceRequest& request) {
      return FaultDevice::Verdict{.error = armed && Hits(request) ? EIO : 0};
    });
    JournalOptions options;
    options.on_abort = [this](const absl::Status&) { ++aborts; };
    stack = std::make_unique<Stack>(device.get(), volume, options);
    stack->Mount();
  }
  bool Hits(const DeviceRequest& request) const {
    if (request.operation == Operation::kFlush) return target == Target::kFlush;
    if (request.operation != Operation::kWrite) return false;
    const BlockNumber block = request.offset_bytes / 1024;
    if (!volume.IsInLog(block)) return target == Target::kHome;
    if (block == volume.LogBlockNumber(0)) return target == Target::kSuperblock;
    const auto* header = static_cast<const JournalHeader*>(request.segments[0].iov_base);
    const bool record = request.length_bytes == 1024 && header->h_blocktype == uint32_t{kJournalCommit};
    return target == (record ? Target::kRecord : Target::kLog);
  }

  const TestVolume& volume;
  Target target = Target::kFlush;
  std::atomic<bool> armed{false};
  std::atomic<int> aborts{0};
  std::unique_ptr<MemoryDevice> memory;
  std::unique_ptr<FaultDevice> device;
  std::unique_ptr<Stack> stack;
};

class JournalFailure : public testing::TestWithParam<Target> {};

TEST_P(JournalFailure, AbortsOnceAndKeepsWhatWasDurable) {
  const TestVolume& volume = SmallVolume();
  Faulty faulty(volume);
  Stack& stack = *faulty.stack;
  ASSERT_EQ(stack.journal->CommitBlocking(stack.WriteBlocks({volume.free_blocks[0]}, 0x41), nullptr), 0);
  faulty.target = GetParam();
  faulty.armed = true;
  int error = 0;
  TransactionId id = 0;
  // A revoke makes the superblock be written; many rounds make the checkpoint run.
  for (uint32_t round = 0; round < 40 && error == 0; ++round) {
    {
      auto handle = stack.journal->Start(100);
      if (!handle.ok()) {
        EXPECT_EQ(StatusToErrno(handle.status()), EROFS);
        break;
      }
      for (uint32_t i = 1; i < 80; ++i) {
        auto buffer = stack.cache->GetZeroed(volume.free_blocks[i]);
        handle->Dirty(*buffer);
      }
      handle->Revoke(volume.free_blocks[200]);
      id = handle->transaction();
    }
    error = stack.journal->CommitBlocking(id, nullptr);
  }
  EXPECT_TRUE(stack.journal->aborted());
  EXPECT_FALSE(stack.journal->abort_reason().ok());
  EXPECT_EQ(StatusToErrno(stack.journal->Start(1).status()), EROFS);
  EXPECT_EQ(stack.journal->CommitBlocking(id + 1, nullptr), error == 0 ? 0 : EIO);
  faulty.armed = false;
  EXPECT_FALSE(stack.journal->Shutdown().ok());
  EXPECT_EQ(faulty.aborts, 1);
  if (GetParam() != Target::kSuperblock) {
    JournalSuperBlock raw;
    std::memcpy(&raw, faulty.memory->bytes().data() + volume.log_map[0].start * 1024, sizeof(raw));
    EXPECT_EQ(static_cast<int>(raw.s_errno.Get()), -EIO);
  }
  faulty.stack.reset();
  Stack again(faulty.memory.get(), volume);
  again.Mount();
  EXPECT_EQ(again.ReadFromDevice(volume.free_blocks[0])[0], 0x41);
}

INSTANTIATE_TEST_SUITE_P(Targets, JournalFailure,
                         testing::Values(Target::kFlush, Target::kLog, Target::kRecord, Target::kSuperblock,
                                         Target::kHome));

TEST(JournalAbort, WaitersGetAnErrorAndSoDoLaterOnes) {
  const TestVolume& volume = SmallVolume();
  Faulty faulty(volume);
  Stack& stack = *faulty.stack;
  auto open = stack.journal->Start(2);
  ASSERT_TRUE(open.ok());
  auto buffer = stack.cache->GetZeroed(volume.free_blocks[0]);
  open->Dirty(*buffer);
  CommitWaiter waiter;
  std::atomic<int> result{-1};
  waiter.transaction = open->transaction();
  waiter.context = &result;
  waiter.done = [](CommitWaiter* self) { static_cast<std::atomic<int>*>(self->context)->store(self->error); };
  EXPECT_EQ(stack.journal->Commit(&waiter), CommitOutcome::kStarted);
  stack.journal->Abort(CorruptionError("found by the caller"));
  stack.journal->Abort(CorruptionError("again"));
  EXPECT_EQ(result, EIO);
  EXPECT_EQ(faulty.aborts, 1);
  CommitWaiter late;
  late.transaction = open->transaction();
  EXPECT_EQ(stack.journal->Commit(&late), CommitOutcome::kAborted);
  open->Stop();  // a handle that is still open stays usable
  EXPECT_EQ(stack.journal->abort_reason().message(), "found by the caller");
}

TEST(JournalAbort, TheDestructorReleasesWaitersWithAnError) {
  const TestVolume& volume = SmallVolume();
  Faulty faulty(volume);
  Stack& stack = *faulty.stack;
  const TransactionId id = stack.WriteBlocks({volume.free_blocks[0]}, 1);
  EXPECT_FALSE(stack.journal->IsDurable(id));
  faulty.stack.reset();
  EXPECT_EQ(faulty.aborts, 0);
}

}  // namespace
}  // namespace elidefs::core
