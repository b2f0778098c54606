#include "blockio/request_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "blockio/device/test_devices.h"
#include "tests/unit/blockio/programmable_device.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

std::unique_ptr<RequestQueue> Open(BlockDevice* device, const RequestQueueOptions& options) {
  auto queue = RequestQueue::Create(device, options);
  EXPECT_TRUE(queue.ok()) << queue.status();
  return *std::move(queue);
}

TEST(RequestQueue, ReadsBackWhatWasWritten) {
  auto device = MemoryDevice::Create({.size_bytes = 1 << 20, .volatile_cache = true});
  auto queue = Open(device.get(), {});
  const AlignedBuffer data = MakeBuffer(8192, 0x11);
  Ticket need = kNoNeed;
  ASSERT_EQ(queue->Write(4096, data.get(), 8192, &need), 0);
  EXPECT_EQ(need, 1U);
  std::vector<uint8_t> unaligned(8193);
  ASSERT_EQ(queue->Read(4096, unaligned.data() + 1, 8192), 0);
  EXPECT_EQ(std::memcmp(unaligned.data() + 1, data.get(), 8192), 0);
  AwaitOutcome outcome = AwaitOutcome::kFailed;
  ASSERT_EQ(queue->ledger().AwaitBlocking(need, &outcome), 0);
  EXPECT_EQ(outcome, AwaitOutcome::kIssued);
  ASSERT_EQ(queue->ledger().AwaitBlocking(need, &outcome), 0);
  EXPECT_EQ(outcome, AwaitOutcome::kElided);
  EXPECT_EQ(device->flushes(), 1U);
  const QueueStats stats = queue->Stats();
  EXPECT_EQ(stats.reads, 1U);
  EXPECT_EQ(stats.writes, 1U);
  EXPECT_EQ(stats.written_bytes, 8192U);
  EXPECT_EQ(stats.flush.issued, 1U);
}

TEST(RequestQueue, RefusesWhatTheDeviceCannotDo) {
  ProgrammableDevice device;
  device.mutable_capabilities().discard = false;
  auto queue = Open(&device, {});
  const uint64_t size = device.capabilities().size_bytes;
  const auto error_of = [&](Operation operation, uint64_t offset, uint64_t length) {
    TestBio bio(operation, offset, length);
    queue->Submit(&bio.bio);
    EXPECT_EQ(bio.ended, 1);
    return bio.bio.error;
  };
  EXPECT_EQ(error_of(Operation::kWrite, 100, 512), EINVAL);
  EXPECT_EQ(error_of(Operation::kWrite, 0, 100), EINVAL);
  EXPECT_EQ(error_of(Operation::kRead, size, 512), EINVAL);
  EXPECT_EQ(error_of(Operation::kRead, size - 512, 1024), EINVAL);
  EXPECT_EQ(error_of(Operation::kRead, ~uint64_t{511}, 512), EINVAL);
  EXPECT_EQ(error_of(Operation::kDiscard, 0, 512), EOPNOTSUPP);
  TestBio misaligned(Operation::kWrite, 0, 1024);
  misaligned.segments[0].iov_base = misaligned.buffer.get() + 8;
  queue->Submit(&misaligned.bio);
  EXPECT_EQ(misaligned.bio.error, EINVAL);
  TestBio short_segments(Operation::kWrite, 0, 1024);
  short_segments.segments[0].iov_len = 512;
  queue->Submit(&short_segments.bio);
  EXPECT_EQ(short_segments.bio.error, EINVAL);
  device.mutable_capabilities().read_only = true;
  EXPECT_EQ(error_of(Operation::kWrite, 0, 512), EROFS);
  EXPECT_EQ(device.log(), "");
  EXPECT_FALSE(RequestQueue::Create(&device, {.queue_depth = 1}).ok());
  device.mutable_capabilities().logical_block_bytes = 1000;
  EXPECT_FALSE(RequestQueue::Create(&device, {}).ok());
}

TEST(RequestQueue, HalvesTheDepthUntilItFits) {
  ProgrammableDevice device;
  device.largest_depth = 300;
  {
    auto queue = Open(&device, {.hardware_queues = 3, .queue_depth = 1000});
    const QueueStats stats = queue->Stats();
    ASSERT_EQ(stats.hardware_queues.size(), 3U);
    for (const HardwareQueueStats& hardware_queue : stats.hardware_queues) EXPECT_EQ(hardware_queue.depth, 250U);
  }
  EXPECT_EQ(device.depths, (std::vector<uint32_t>{1001, 501, 251, 251, 251})) << "with the flush request";
  device.largest_depth = 3;
  EXPECT_EQ(Open(&device, {.hardware_queues = 1, .queue_depth = 1024})->Stats().hardware_queues[0].depth, 2U);
  device.largest_depth = 2;
  device.depths.clear();
  const auto none = RequestQueue::Create(&device, {.queue_depth = 7});
  EXPECT_EQ(StatusToErrno(none.status()), ENOMEM);
  EXPECT_EQ(device.depths, (std::vector<uint32_t>{8, 4}));
}

TEST(RequestQueue, SplitsByLengthAndEndsOnceWithTheFirstError) {
  ProgrammableDevice device;
  device.mutable_capabilities().max_transfer_bytes = 4096;
  auto queue = Open(&device, {.hardware_queues = 1, .queue_depth = 4});
  TestBio bio(Operation::kWrite, 65536, 10 * 4096);
  queue->Submit(&bio.bio);
  ASSERT_EQ(device.held(), 4U);  // as many as there are tags
  EXPECT_EQ(device.Peek(1).offset_bytes, 65536U + 4096);
  EXPECT_EQ(device.Peek(1).segments[0].iov_base, bio.buffer.get() + 4096);
  device.Complete(1, ENOSPC);
  device.Complete(0, EIO);
  (void)queue->ledger().Dispatched();  // a flush passes between the children
  device.CompleteAll();
  EXPECT_EQ(bio.ended, 1);
  EXPECT_EQ(bio.bio.error, ENOSPC);
  EXPECT_EQ(bio.bio.need, 2U);  // the last child's, which is the largest
  EXPECT_EQ(device.log(), "WWWWWWWWWW");
}

TEST(RequestQueue, SplitsBySegmentsAtLogicalBlocks) {
  ProgrammableDevice device;
  device.mutable_capabilities().logical_block_bytes = 4096;
  device.mutable_capabilities().memory_alignment_bytes = 512;
  device.mutable_capabilities().max_segments = 9;  // nine pieces of 512 are a block and a bit
  auto queue = Open(&device, {.hardware_queues = 1});
  TestBio bio(Operation::kWrite, 0, 5 * 4096);
  bio.segments.clear();
  for (int i = 0; i < 40; ++i) bio.segments.push_back(iovec{bio.buffer.get() + i * 512, 512});
  bio.UseSegments();
  queue->Submit(&bio.bio);
  ASSERT_EQ(device.held(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    const DeviceRequest child = device.Peek(i);
    EXPECT_EQ(child.offset_bytes, i * 4096);
    EXPECT_EQ(child.length_bytes, 4096U);
    EXPECT_EQ(child.segments[0].iov_base, bio.buffer.get() + i * 4096);
  }
  device.CompleteAll();
  EXPECT_EQ(bio.ended, 1);
}

TEST(RequestQueue, SplitDataArrivesInPlace) {
  auto device = MemoryDevice::Create({.size_bytes = 16 << 20});
  auto queue = Open(device.get(), {.hardware_queues = 1, .queue_depth = 2});
  TestBio bio(Operation::kWrite, 512, 5U << 20U);
  for (size_t i = 0; i < bio.bio.length_bytes; ++i) bio.buffer.get()[i] = static_cast<uint8_t>(i * 7 + i / 4096);
  bio.segments.clear();
  // Segments of uneven lengths, more than the device takes at once.
  std::mt19937 random(3);
  for (uint64_t at = 0; at < bio.bio.length_bytes;) {
    const uint64_t length = std::min<uint64_t>(512 * (1 + random() % 20), bio.bio.length_bytes - at);
    bio.segments.push_back(iovec{bio.buffer.get() + at, length});
    at += length;
  }
  bio.UseSegments();
  ASSERT_EQ(queue->SubmitAndWait(&bio.bio), 0);
  EXPECT_EQ(std::memcmp(device->bytes().data() + 512, bio.buffer.get(), bio.bio.length_bytes), 0);
  EXPECT_GT(queue->Stats().hardware_queues[0].dispatched, 5U);
}

TEST(RequestQueue, ExhaustedTagsLoseNothingAndKeepTheOrder) {
  ProgrammableDevice device;
  auto queue = Open(&device, {.hardware_queues = 1, .queue_depth = 4});
  std::vector<std::unique_ptr<TestBio>> bios;
  for (uint64_t i = 0; i < 100; ++i) {
    bios.push_back(std::make_unique<TestBio>(Operation::kWrite, i * 512, 512));
    queue->Submit(&bios.back()->bio);
  }
  EXPECT_EQ(device.held(), 4U);
  EXPECT_EQ(queue->Stats().hardware_queues[0].in_flight, 4U);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(device.Peek(0).offset_bytes, i * 512);
    device.Complete(0);
  }
  for (const auto& bio : bios) EXPECT_EQ(bio->ended, 1);
  EXPECT_EQ(queue->Stats().hardware_queues[0].in_flight, 0U);
}

// A chain through end_io on a device that completes inside Submit would overflow the stack if it recursed.
TEST(RequestQueue, ResubmissionFromEndIoDoesNotRecurse) {
  auto device = MemoryDevice::Create({.size_bytes = 1 << 20, .volatile_cache = true});
  auto queue = Open(device.get(), {.hardware_queues = 1});
  TestBio bio(Operation::kWrite, 0, 512, kBioFua);
  int rounds = 0;
  bio.on_end = [&](TestBio* self) {
    if (++rounds < 200000) queue->Submit(&self->bio);
  };
  queue->Submit(&bio.bio);
  EXPECT_EQ(rounds, 200000);
  EXPECT_EQ(queue->Stats().flush.durable, 200000U);
}

TEST(RequestQueue, QuiesceHoldsDispatchAndNests) {
  ProgrammableDevice device;
  auto queue = Open(&device, {.hardware_queues = 1});
  queue->Quiesce();
  queue->Quiesce();
  TestBio write(Operation::kWrite, 0, 512);
  TestBio flush(Operation::kFlush, 0, 0);
  queue->Submit(&write.bio);
  queue->Submit(&flush.bio);
  queue->Unquiesce();
  EXPECT_EQ(device.log(), "");
  queue->Unquiesce();
  EXPECT_EQ(device.log().size(), 2U);
  device.CompleteAll();
  EXPECT_EQ(write.ended + flush.ended, 2);
}

TEST(RequestQueue, FreezeWaitsForWhatIsInFlightAndHoldsNewSubmitters) {
  ProgrammableDevice device;
  auto queue = Open(&device, {.hardware_queues = 1});
  TestBio before(Operation::kWrite, 0, 512);
  TestBio chained(Operation::kWrite, 512, 512);
  TestBio after(Operation::kWrite, 1024, 512);
  before.on_end = [&](TestBio*) {
    queue->Submit(&chained.bio);
  };  // passes the closing door: it would deadlock otherwise
  queue->Submit(&before.bio);
  std::atomic<bool> frozen{false};
  std::thread freezer([&] {
    queue->Freeze();
    frozen = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(frozen);
  device.Complete(0);
  ASSERT_TRUE(device.WaitForHeld(1));
  EXPECT_FALSE(frozen);
  device.Complete(0);
  freezer.join();
  EXPECT_EQ(chained.ended, 1);
  std::thread submitter([&] { queue->Submit(&after.bio); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(device.held(), 0U);
  queue->Unfreeze();
  submitter.join();
  device.CompleteAll();
  EXPECT_EQ(after.ended, 1);
}

TEST(RequestQueue, AFlushAskedForWhileFrozenIsSentAtUnfreeze) {
  ProgrammableDevice device;
  auto queue = Open(&device, {.hardware_queues = 1});
  queue->Freeze();
  FlushWaiter waiter{.need = 1, .done = [](FlushWaiter* w) { *static_cast<bool*>(w->context) = true; }};
  bool done = false;
  waiter.context = &done;
  EXPECT_EQ(queue->ledger().Await(&waiter), AwaitOutcome::kIssued);
  EXPECT_EQ(device.held(), 0U);
  queue->Unfreeze();
  ASSERT_EQ(device.held(), 1U);
  device.CompleteAll();
  EXPECT_TRUE(done);
}

TEST(RequestQueue, FreezeAndQuiesceUnderLoad) {
  auto device = VolatileCacheDevice::Create(std::vector<uint8_t>(1 << 20), {.max_queues = 2, .reorder_seed = 9});
  auto queue = Open(device.get(), {.hardware_queues = 2, .queue_depth = 4});
  std::atomic<bool> stop{false};
  std::atomic<int> in_flight{0};
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (!stop) {
        const auto operation = random() % 3 == 0 ? Operation::kRead : Operation::kWrite;
        TestBio bio(operation, (t * 64 + random() % 64) * 512, 512, random() % 8 == 0 ? kBioFua | kBioPreflush : 0U);
        in_flight.fetch_add(1);
        if (queue->SubmitAndWait(&bio.bio) != 0) errors.fetch_add(1);
        in_flight.fetch_sub(1);
        if (random() % 8 == 0 && queue->ledger().AwaitBlocking(bio.bio.need, nullptr) != 0) errors.fetch_add(1);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    queue->Freeze();
    for (const HardwareQueueStats& stats : queue->Stats().hardware_queues) {
      EXPECT_EQ(stats.in_flight, 0U);
      EXPECT_EQ(stats.flush_index % 2, 0U);
      EXPECT_EQ(stats.dispatched, stats.completed);
    }
    queue->Unfreeze();
    queue->Quiesce();
    std::this_thread::yield();
    queue->Unquiesce();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors.load(), 0);
  const QueueStats stats = queue->Stats();
  EXPECT_EQ(stats.flush.issued, stats.flush.durable);
  EXPECT_EQ(stats.flush.requested, stats.flush.elided + stats.flush.joined + stats.flush.caused + stats.flush.refused);
}

TEST(RequestQueue, SubmittersOnSeveralThreadsNeverOverlapInOneDeviceQueue) {
  ProgrammableDevice device;
  auto queue = Open(&device, {.hardware_queues = 2, .queue_depth = 8});
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  std::thread completer([&] {
    while (!stop || device.held() > 0) device.CompleteAll();
  });
  std::atomic<int> failures{0};
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        TestBio bio(Operation::kWrite, (t * 2000 + i) * 512, 512, i % 16 == 0 ? kBioFua : 0U);
        if (queue->SubmitAndWait(&bio.bio) != 0) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  completer.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_FALSE(device.overlapping_submits);
}

}  // namespace
}  // namespace elidefs::blockio
