// Flush sequences and C1-C3 against a device whose completions the test gives by hand.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "blockio/request_queue.h"
#include "tests/unit/blockio/programmable_device.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

class FlushSequence : public ::testing::Test {
 protected:
  void Open(uint32_t queues = 1, uint32_t starvation_ms = 5000, uint32_t depth = 8) {
    auto queue = RequestQueue::Create(
        &device_, {.hardware_queues = queues, .queue_depth = depth, .flush_starvation_ms = starvation_ms});
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }
  void TearDown() override { EXPECT_FALSE(device_.overlapping_submits); }
  uint64_t FlushIndex() { return queue_->Stats().hardware_queues[0].flush_index; }

  ProgrammableDevice device_;
  std::unique_ptr<RequestQueue> queue_;
};

TEST_F(FlushSequence, PreflushDataPostflush) {
  Open();
  TestBio bio(Operation::kWrite, 0, 4096, kBioPreflush | kBioFua);
  queue_->Submit(&bio.bio);
  EXPECT_EQ(device_.log(), "F");
  EXPECT_EQ(FlushIndex(), 1U);  // odd: in flight
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FW");
  EXPECT_EQ(FlushIndex(), 2U);
  EXPECT_EQ(device_.Peek(0).length_bytes, 4096U);
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FWF");
  EXPECT_EQ(bio.ended, 0);
  device_.Complete(0);
  EXPECT_EQ(bio.ended, 1);
  EXPECT_EQ(bio.bio.error, 0);
  EXPECT_EQ(bio.bio.need, kNoNeed);  // a flush behind the data satisfied it
  EXPECT_EQ(queue_->ledger().durable(), 2U);
}

TEST_F(FlushSequence, NativeFuaNeedsNoPostflush) {
  device_.mutable_capabilities().native_fua = true;
  Open();
  TestBio bio(Operation::kWrite, 0, 4096, kBioPreflush | kBioFua);
  queue_->Submit(&bio.bio);
  device_.Complete(0);
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FW+");
  EXPECT_EQ(bio.ended, 1);
  EXPECT_EQ(bio.bio.need, kNoNeed);  // E6
  // Zeroing has no FUA on any device: emulated.
  TestBio zeroes(Operation::kWriteZeroes, 0, 4096, kBioFua);
  queue_->Submit(&zeroes.bio);
  device_.CompleteAll();
  EXPECT_EQ(device_.log(), "FW+ZF");
  EXPECT_EQ(zeroes.bio.need, kNoNeed);
}

TEST_F(FlushSequence, WithoutAVolatileCacheFlagsAreDropped) {
  device_.mutable_capabilities().volatile_write_cache = false;
  Open();
  TestBio flush(Operation::kFlush, 0, 0);
  queue_->Submit(&flush.bio);
  EXPECT_EQ(flush.ended, 1);
  EXPECT_EQ(flush.bio.error, 0);
  TestBio bio(Operation::kWrite, 0, 4096, kBioPreflush | kBioFua);
  queue_->Submit(&bio.bio);
  device_.CompleteAll();
  EXPECT_EQ(device_.log(), "W");
  EXPECT_TRUE(queue_->ledger().IsDurable(bio.bio.need));
  EXPECT_EQ(queue_->ledger().issued(), 0U);  // E9
}

TEST_F(FlushSequence, NoDataAfterAFailedPreflush) {
  Open();
  TestBio bio(Operation::kWrite, 0, 4096, kBioPreflush | kBioFua);
  queue_->Submit(&bio.bio);
  device_.Complete(0, ENOMEDIUM);
  EXPECT_EQ(device_.log(), "F");
  EXPECT_EQ(bio.ended, 1);
  EXPECT_EQ(bio.bio.error, EIO);
  EXPECT_TRUE(queue_->ledger().failed());  // E4
}

TEST_F(FlushSequence, NoPostflushAfterFailedData) {
  Open();
  TestBio bio(Operation::kWrite, 0, 4096, kBioFua);
  queue_->Submit(&bio.bio);
  device_.Complete(0, ENOSPC);
  EXPECT_EQ(device_.log(), "W");
  EXPECT_EQ(bio.bio.error, ENOSPC);
  EXPECT_FALSE(queue_->ledger().failed());
  TestBio flush(Operation::kFlush, 0, 0);  // C2's count went down again
  queue_->Submit(&flush.bio);
  EXPECT_EQ(device_.log(), "WF");
  device_.CompleteAll();
  EXPECT_EQ(flush.bio.error, 0);
}

TEST_F(FlushSequence, AFailedPostflushIsTheBiosError) {
  Open();
  TestBio bio(Operation::kWrite, 0, 4096, kBioFua);
  queue_->Submit(&bio.bio);
  device_.Complete(0);
  device_.Complete(0, EIO);
  EXPECT_EQ(bio.ended, 1);
  EXPECT_EQ(bio.bio.error, EIO);
}

TEST_F(FlushSequence, E2NeedIsReadAtTheWritesOwnCompletion) {
  Open();
  TestBio early(Operation::kWrite, 0, 512);
  TestBio late(Operation::kWrite, 512, 512);
  TestBio flush(Operation::kFlush, 0, 0);
  queue_->Submit(&early.bio);
  queue_->Submit(&late.bio);
  device_.Complete(0);
  queue_->Submit(&flush.bio);
  device_.Complete(0);  // `late`, behind the dispatch of the flush
  EXPECT_EQ(early.bio.need, 1U);
  EXPECT_EQ(late.bio.need, 2U);
  device_.CompleteAll();
  EXPECT_TRUE(queue_->ledger().IsDurable(early.bio.need));
  EXPECT_FALSE(queue_->ledger().IsDurable(late.bio.need));
}

TEST_F(FlushSequence, C1OneInFlightAndTheRestShareTheNext) {
  Open();
  std::vector<std::unique_ptr<TestBio>> flushes;
  for (int i = 0; i < 64; ++i) {
    flushes.push_back(std::make_unique<TestBio>(Operation::kFlush, 0, 0));
    queue_->Submit(&flushes.back()->bio);
  }
  EXPECT_EQ(device_.log(), "F");
  device_.Complete(0);
  EXPECT_EQ(flushes[0]->ended, 1);
  EXPECT_EQ(flushes[1]->ended, 0);  // asked for after the first was dispatched
  EXPECT_EQ(device_.log(), "FF");
  device_.Complete(0);
  for (const auto& flush : flushes) EXPECT_EQ(flush->ended, 1);
  EXPECT_EQ(device_.log(), "FF");
}

TEST_F(FlushSequence, C2DeferredWhileDataOfASequenceRuns) {
  Open();
  TestBio record(Operation::kWrite, 0, 4096, kBioFua);
  TestBio flush(Operation::kFlush, 0, 0);
  TestBio plain(Operation::kWrite, 8192, 4096);
  queue_->Submit(&record.bio);
  queue_->Submit(&plain.bio);
  queue_->Submit(&flush.bio);
  EXPECT_EQ(device_.log(), "WW");
  device_.Complete(0);  // the record's data: both want a flush now, and one serves them
  EXPECT_EQ(device_.log(), "WWF");
  device_.Complete(1);
  EXPECT_EQ(record.ended, 1);
  EXPECT_EQ(flush.ended, 1);
  device_.CompleteAll();
  EXPECT_EQ(device_.log(), "WWF");
}

TEST_F(FlushSequence, C2PlainDataDefersNothing) {
  Open();
  TestBio plain(Operation::kWrite, 8192, 4096);
  TestBio flush(Operation::kFlush, 0, 0);
  queue_->Submit(&plain.bio);
  queue_->Submit(&flush.bio);
  EXPECT_EQ(device_.log(), "WF");
  device_.CompleteAll();
}

TEST_F(FlushSequence, C3ALongWaitOverridesC2) {
  Open(1, 20);
  TestBio record(Operation::kWrite, 0, 4096, kBioFua);
  TestBio flush(Operation::kFlush, 0, 0);
  TestBio another(Operation::kWrite, 8192, 4096);
  queue_->Submit(&record.bio);
  queue_->Submit(&flush.bio);
  EXPECT_EQ(device_.log(), "W");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  queue_->Submit(&another.bio);  // conditions are looked at again at each event
  EXPECT_EQ(device_.log(), "WFW");
  device_.CompleteAll();
  EXPECT_EQ(flush.ended, 1);
  EXPECT_EQ(record.ended, 1);
}

TEST_F(FlushSequence, FlushingNeedsNoTag) {
  Open(1, 5000, 2);
  EXPECT_EQ(device_.depths[0], 3U);
  TestBio a(Operation::kWrite, 0, 512);
  TestBio b(Operation::kWrite, 512, 512);
  TestBio c(Operation::kWrite, 1024, 512);
  TestBio flush(Operation::kFlush, 0, 0);
  for (TestBio* bio : {&a, &b, &c, &flush}) queue_->Submit(&bio->bio);
  EXPECT_EQ(device_.log(), "WWF");  // both tags taken, the third write waits, the flush does not
  device_.CompleteAll();
  EXPECT_EQ(device_.log(), "WWFW");
  EXPECT_EQ(c.ended, 1);
}

TEST_F(FlushSequence, E3AFlushBioEndsOnlyWhenEarlierFlushesOfOtherQueuesDid) {
  Open();
  // The ledger is the leaf's: a ticket taken elsewhere (another queue) is in flight before ours.
  const Ticket elsewhere = queue_->ledger().Dispatched();
  TestBio flush(Operation::kFlush, 0, 0);
  queue_->Submit(&flush.bio);
  device_.Complete(0);
  EXPECT_EQ(flush.ended, 0);
  EXPECT_EQ(FlushIndex(), 2U);  // the device has answered; the queue may flush again
  queue_->ledger().Completed(elsewhere, EIO);
  EXPECT_EQ(flush.ended, 1);
  EXPECT_EQ(flush.bio.error, EIO);
}

TEST_F(FlushSequence, SplitBioRunsOneSequence) {
  device_.mutable_capabilities().max_transfer_bytes = 4096;
  Open();
  TestBio bio(Operation::kWrite, 0, 16384, kBioPreflush | kBioFua);
  queue_->Submit(&bio.bio);
  EXPECT_EQ(device_.log(), "F");
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FWWWW");
  device_.Complete(2);
  device_.Complete(0);
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FWWWW");
  device_.Complete(0);
  EXPECT_EQ(device_.log(), "FWWWWF");
  device_.Complete(0);
  EXPECT_EQ(bio.ended, 1);
}

TEST_F(FlushSequence, LedgerWaitersCostAtMostTwoFlushesPerQueue) {
  Open(2);
  std::vector<std::thread> threads;
  std::atomic<int> errors{0};
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      if (queue_->ledger().AwaitBlocking(queue_->ledger().NeedOfCompletedWrite(), nullptr) != 0) errors.fetch_add(1);
    });
  }
  while (true) {
    const FlushStats stats = queue_->ledger().Stats();
    if (stats.requested == 64) break;
    std::this_thread::yield();
  }
  while (queue_->Stats().flush.durable < queue_->Stats().flush.issued || device_.held() > 0) device_.CompleteAll();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors.load(), 0);
  for (const HardwareQueueStats& stats : queue_->Stats().hardware_queues) EXPECT_LE(stats.flushes_submitted, 2U);
  EXPECT_EQ(queue_->Stats().flush.issued, device_.log().size());
}

}  // namespace
}  // namespace elidefs::blockio
