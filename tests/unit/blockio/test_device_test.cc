// The crash laboratory's devices: what they promise is what the crash tests judge by.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "blockio/device/test_devices.h"
#include "blockio/request_queue.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

using Cut = VolatileCacheDevice::Cut;

// Drives the device by hand: the test says when a write is submitted, so events are known exactly.
class VolatileCache : public ::testing::Test {
 protected:
  void Open(const VolatileCacheDevice::Options& options, size_t size_bytes = 64 << 10) {
    device_ = VolatileCacheDevice::Create(std::vector<uint8_t>(size_bytes, 0xEE), options);
    queue_ = *RequestQueue::Create(device_.get(), {.hardware_queues = 1});
  }
  void Write(uint64_t offset, uint64_t length, int fill, uint32_t flags = 0) {
    TestBio bio(Operation::kWrite, offset, length, flags, fill);
    ASSERT_EQ(queue_->SubmitAndWait(&bio.bio), 0);
  }
  void Flush() {
    TestBio bio(Operation::kFlush, 0, 0);
    ASSERT_EQ(queue_->SubmitAndWait(&bio.bio), 0);
  }
  std::vector<uint8_t> After(Cut mode, uint64_t seed = 0) {
    return device_->ImageAfterCut(device_->event_count(), mode, seed);
  }

  std::unique_ptr<VolatileCacheDevice> device_;
  std::unique_ptr<RequestQueue> queue_;
};

TEST_F(VolatileCache, UnflushedWritesMayBeLostFlushedOnesMayNot) {
  Open({});
  Write(0, 1024, 1);
  EXPECT_EQ(After(Cut::kDropAll)[0], 0xEE);
  EXPECT_EQ(After(Cut::kKeepAll)[0], 1);
  Flush();
  Write(4096, 512, 2);
  for (const Cut mode : {Cut::kDropAll, Cut::kKeepAll, Cut::kRandom}) {
    EXPECT_EQ(After(mode)[0], 1);
    EXPECT_EQ(After(mode)[1023], 1);
    EXPECT_EQ(After(mode)[1024], 0xEE);
  }
  EXPECT_EQ(After(Cut::kDropAll)[4096], 0xEE);
  EXPECT_EQ(After(Cut::kKeepAll)[4096], 2);
}

TEST_F(VolatileCache, ADispatchedFlushProvesNothingUntilItCompletes) {
  Open({});
  Write(0, 512, 1);
  Flush();
  ASSERT_EQ(device_->event_count(), 4U);
  EXPECT_EQ(device_->event(2).kind, DeviceEvent::Kind::kFlushDispatched);
  EXPECT_EQ(device_->event(3).kind, DeviceEvent::Kind::kFlushCompleted);
  EXPECT_EQ(device_->ImageAfterCut(4, Cut::kDropAll, 0)[0], 1);
  EXPECT_EQ(device_->ImageAfterCut(3, Cut::kDropAll, 0)[0], 0xEE);
  EXPECT_EQ(device_->ImageAfterCut(1, Cut::kKeepAll, 0)[0], 1);  // submitted, perhaps on the medium already
  EXPECT_EQ(device_->ImageAfterCut(0, Cut::kKeepAll, 0)[0], 0xEE);
}

TEST_F(VolatileCache, FuaIsDurableAtItsCompletionAndCoversNothingElse) {
  Open({.native_fua = true});
  Write(0, 512, 1);
  Write(512, 512, 2, kBioFua);
  EXPECT_EQ(After(Cut::kDropAll)[0], 0xEE);
  EXPECT_EQ(After(Cut::kDropAll)[512], 2);
  EXPECT_EQ(device_->ImageAfterCut(3, Cut::kDropAll, 0)[512], 0xEE);  // before the completion
  EXPECT_TRUE(device_->event(2).fua);
}

TEST_F(VolatileCache, TearsAtSectorsAndNowhereElse) {
  Open({});
  Write(0, 16 * 512, 1);
  bool torn = false;
  bool whole = false;
  bool lost = false;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    const std::vector<uint8_t> image = After(Cut::kRandom, seed);
    EXPECT_EQ(image, After(Cut::kRandom, seed));
    int kept = 0;
    for (size_t sector = 0; sector < 16; ++sector) {
      const std::set<uint8_t> values(image.begin() + static_cast<ptrdiff_t>(sector * 512),
                                     image.begin() + static_cast<ptrdiff_t>((sector + 1) * 512));
      ASSERT_EQ(values.size(), 1U);
      kept += *values.begin() == 1 ? 1 : 0;
    }
    torn |= kept > 0 && kept < 16;
    whole |= kept == 16;
    lost |= kept == 0;
  }
  EXPECT_TRUE(torn);
  EXPECT_TRUE(whole);
  EXPECT_TRUE(lost);
}

TEST_F(VolatileCache, UnflushedWritesAreReordered) {
  Open({});
  Write(0, 512, 1);
  Write(512, 512, 2);
  bool later_without_earlier = false;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const std::vector<uint8_t> image = After(Cut::kRandom, seed);
    later_without_earlier |= image[0] == 0xEE && image[512] == 2;
  }
  EXPECT_TRUE(later_without_earlier);
}

TEST_F(VolatileCache, AnOverwriteLeavesTheOldOrTheNewButNothingOlder) {
  Open({});
  Write(0, 512, 1);
  Flush();
  Write(0, 512, 2);
  Write(0, 512, 3);
  std::set<uint8_t> seen;
  for (uint64_t seed = 0; seed < 64; ++seed) seen.insert(After(Cut::kRandom, seed)[0]);
  EXPECT_EQ(seen, (std::set<uint8_t>{1, 2, 3}));
  Flush();
  EXPECT_EQ(After(Cut::kRandom, 5)[0], 3);
}

TEST_F(VolatileCache, ZeroesAndDiscardsAreCachedChangesToo) {
  Open({.discard = true});
  TestBio zeroes(Operation::kWriteZeroes, 0, 512);
  TestBio discard(Operation::kDiscard, 512, 512);
  ASSERT_EQ(queue_->SubmitAndWait(&zeroes.bio), 0);
  ASSERT_EQ(queue_->SubmitAndWait(&discard.bio), 0);
  EXPECT_EQ(zeroes.bio.need, 1U);
  EXPECT_EQ(discard.bio.need, 1U);
  EXPECT_EQ(After(Cut::kDropAll)[0], 0xEE);
  EXPECT_EQ(After(Cut::kKeepAll)[0], 0);
  EXPECT_TRUE(device_->event(0).zeroes_or_discard);
  Flush();
  EXPECT_EQ(After(Cut::kDropAll)[512], 0);
}

TEST_F(VolatileCache, MarksAreEvents) {
  Open({});
  device_->Mark(17);
  ASSERT_EQ(device_->event_count(), 1U);
  EXPECT_EQ(device_->event(0).kind, DeviceEvent::Kind::kMark);
  EXPECT_EQ(device_->event(0).id, 17U);
}

// Random load with reordered completions: every image is checked against a slow model written from the contract.
TEST(VolatileCacheModel, EveryCutAgreesWithTheContract) {
  constexpr size_t kSectors = 32;
  auto device = VolatileCacheDevice::Create(std::vector<uint8_t>(kSectors * 512, 0),
                                            {.native_fua = true, .max_queues = 2, .reorder_seed = 4});
  auto queue = *RequestQueue::Create(device.get(), {.hardware_queues = 2, .queue_depth = 8});
  std::vector<std::unique_ptr<TestBio>> bios;
  for (uint64_t i = 0; i < 120; ++i) {
    const bool flush = i % 9 == 8;
    bios.push_back(flush ? std::make_unique<TestBio>(Operation::kFlush, 0, 0)
                         : std::make_unique<TestBio>(Operation::kWrite, (i * 7 % (kSectors - 2)) * 512, 1024,
                                                     i % 11 == 0 ? kBioFua : 0U, static_cast<int>(i + 1)));
    queue->Submit(&bios.back()->bio);
  }
  queue->Freeze();
  bool out_of_order = false;
  uint64_t last_completed = 0;
  const size_t events = device->event_count();
  for (size_t cut = 0; cut <= events; ++cut) {
    // Per sector the values a cut may leave, by the contract: the newest durable one and everything submitted later.
    const std::vector<uint8_t> dropped = device->ImageAfterCut(cut, Cut::kDropAll, 0);
    const std::vector<uint8_t> kept = device->ImageAfterCut(cut, Cut::kKeepAll, 0);
    const std::vector<uint8_t> random = device->ImageAfterCut(cut, Cut::kRandom, cut);
    for (size_t sector = 0; sector < kSectors; ++sector) {
      uint8_t durable = 0;
      uint8_t newest = 0;
      std::set<uint8_t> allowed{0};
      for (size_t s = 0; s < cut; ++s) {
        const DeviceEvent& write = device->event(s);
        if (write.kind != DeviceEvent::Kind::kWriteSubmitted) continue;
        if (sector * 512 < write.offset_bytes || sector * 512 >= write.offset_bytes + write.data.size()) continue;
        bool is_durable = false;
        for (size_t c = s; c < cut && !is_durable; ++c) {
          const DeviceEvent& end = device->event(c);
          if (end.kind != DeviceEvent::Kind::kWriteCompleted || end.id != write.id) continue;
          is_durable = write.fua;
          for (size_t d = c; d < cut && !is_durable; ++d) {
            if (device->event(d).kind != DeviceEvent::Kind::kFlushDispatched) continue;
            for (size_t f = d; f < cut && !is_durable; ++f) {
              is_durable = device->event(f).kind == DeviceEvent::Kind::kFlushCompleted &&
                           device->event(f).id == device->event(d).id;
            }
          }
        }
        newest = write.data[0];
        if (is_durable) {
          durable = write.data[0];
          allowed = {durable};
        } else {
          allowed.insert(write.data[0]);
        }
      }
      ASSERT_EQ(dropped[sector * 512], durable) << "cut " << cut << " sector " << sector;
      ASSERT_EQ(kept[sector * 512], newest);
      ASSERT_TRUE(allowed.contains(random[sector * 512]));
    }
    if (cut < events && device->event(cut).kind == DeviceEvent::Kind::kWriteCompleted) {
      out_of_order |= device->event(cut).id < last_completed;
      last_completed = device->event(cut).id;
    }
    if (cut % 40 == 39) {  // going back gives the same answer
      EXPECT_EQ(device->ImageAfterCut(cut / 2, Cut::kRandom, 1), device->ImageAfterCut(cut / 2, Cut::kRandom, 1));
    }
  }
  EXPECT_TRUE(out_of_order);
}

TEST(VolatileCacheModel, ASweepOverManyCutsCostsOneCopyOfTheImageEach) {
  constexpr size_t kImageBytes = 16 << 20;
  auto device = VolatileCacheDevice::Create(std::vector<uint8_t>(kImageBytes, 0), {});
  auto queue = *RequestQueue::Create(device.get(), {.hardware_queues = 1});
  const AlignedBuffer data = MakeBuffer(16384, 7);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(queue->Write(i * 49152 % (kImageBytes - 16384), data.get(), 16384, nullptr), 0);
    if (i % 10 == 0) {
      ASSERT_EQ(queue->ledger().FlushUnconditionally(), 0);
    }
  }
  const size_t events = device->event_count();
  std::vector<uint8_t> image;
  std::vector<uint8_t> plain(kImageBytes, 0);
  const auto start = std::chrono::steady_clock::now();
  size_t cuts = 0;
  for (size_t cut = 0; cut <= events; cut += 10, ++cuts) device->ImageAfterCutInto(cut, Cut::kRandom, cut, &image);
  const auto swept = std::chrono::steady_clock::now();
  for (size_t cut = 0; cut < cuts; ++cut) {
    plain[cut] = 1;
    image.assign(plain.begin(), plain.end());
  }
  const auto copied = std::chrono::steady_clock::now() - swept;
  // Replaying the history for each image would cost some fifty copies; the rest is room for a busy machine.
  EXPECT_LT(swept - start, 20 * copied + std::chrono::seconds(2));
}

TEST(Memory, FlushesAreCountedAndNothingIsLost) {
  auto device = MemoryDevice::FromBytes(std::vector<uint8_t>(8192, 3), {.volatile_cache = true});
  EXPECT_EQ(device->capabilities().size_bytes, 8192U);
  auto queue = *RequestQueue::Create(device.get(), {});
  std::vector<uint8_t> data(512);
  ASSERT_EQ(queue->Read(7680, data.data(), 512), 0);
  EXPECT_EQ(data[511], 3);
  TestBio zeroes(Operation::kWriteZeroes, 0, 4096);
  ASSERT_EQ(queue->SubmitAndWait(&zeroes.bio), 0);
  EXPECT_EQ(device->bytes()[4095], 0);
  EXPECT_EQ(queue->ledger().AwaitBlocking(zeroes.bio.need, nullptr), 0);
  EXPECT_EQ(device->flushes(), 1U);
}

class Fault : public ::testing::Test {
 protected:
  std::unique_ptr<MemoryDevice> memory_ = MemoryDevice::Create({.size_bytes = 1 << 20, .volatile_cache = true});
  std::unique_ptr<FaultDevice> device_ = FaultDevice::Create(memory_.get(), nullptr);
  std::unique_ptr<RequestQueue> queue_ = *RequestQueue::Create(device_.get(), {.hardware_queues = 2});

  int Write(uint64_t offset, uint64_t length, int fill) {
    TestBio bio(Operation::kWrite, offset, length, 0, fill);
    return queue_->SubmitAndWait(&bio.bio);
  }
};

TEST_F(Fault, PassesThroughWithoutAPlan) {
  EXPECT_EQ(Write(0, 4096, 1), 0);
  EXPECT_EQ(memory_->bytes()[4095], 1);
}

TEST_F(Fault, FailsBeforeAfterAndInTheMiddle) {
  device_->SetPlan([](const DeviceRequest&) { return FaultDevice::Verdict{.error = ENOSPC}; });
  EXPECT_EQ(Write(0, 4096, 1), ENOSPC);
  EXPECT_EQ(memory_->bytes()[0], 0);
  device_->SetPlan([](const DeviceRequest&) { return FaultDevice::Verdict{.error = EIO, .apply_first = true}; });
  EXPECT_EQ(Write(0, 4096, 2), EIO);
  EXPECT_EQ(memory_->bytes()[4095], 2);
  device_->SetPlan([](const DeviceRequest&) { return FaultDevice::Verdict{.error = EIO, .torn_bytes = 1536}; });
  EXPECT_EQ(Write(4096, 4096, 3), EIO);
  EXPECT_EQ(memory_->bytes()[4096 + 1535], 3);
  EXPECT_EQ(memory_->bytes()[4096 + 1536], 0);
}

TEST_F(Fault, AFailedFlushFailsTheLeaf) {
  ASSERT_EQ(Write(0, 512, 1), 0);
  ASSERT_EQ(queue_->ledger().FlushUnconditionally(), 0);
  ASSERT_EQ(Write(0, 512, 2), 0);
  device_->SetPlan([](const DeviceRequest& request) {
    return FaultDevice::Verdict{.error = request.operation == Operation::kFlush ? EIO : 0};
  });
  EXPECT_EQ(queue_->ledger().AwaitBlocking(2, nullptr), EIO);
  device_->SetPlan(nullptr);
  EXPECT_EQ(queue_->ledger().AwaitBlocking(2, nullptr), EIO);
  EXPECT_EQ(queue_->ledger().AwaitBlocking(1, nullptr), 0);
  TestBio flush(Operation::kFlush, 0, 0);
  EXPECT_EQ(queue_->SubmitAndWait(&flush.bio), EIO);  // E4, although the device succeeds
  EXPECT_EQ(queue_->Stats().flush.durable, 1U);
}

TEST_F(Fault, DelaysLetOthersOvertake) {
  std::atomic<int> seen{0};
  device_->SetPlan(
      [&seen](const DeviceRequest&) { return FaultDevice::Verdict{.delay_us = seen.fetch_add(1) == 0 ? 50000U : 0U}; });
  TestBio slow(Operation::kWrite, 0, 512);
  TestBio fast(Operation::kWrite, 512, 512);
  queue_->Submit(&slow.bio);
  EXPECT_EQ(queue_->SubmitAndWait(&fast.bio), 0);
  EXPECT_EQ(slow.ended, 0);
  queue_->Freeze();
  EXPECT_EQ(slow.ended, 1);
  EXPECT_EQ(slow.bio.error, 0);
}

}  // namespace
}  // namespace elidefs::blockio
