#include "blockio/device/stacked_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "blockio/device/test_devices.h"
#include "blockio/request_queue.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

constexpr uint64_t kLeafBytes = 256U << 10U;
constexpr uint64_t kChunkBytes = 16U << 10U;

// Three leaves in memory, each behind faults.
class StackedDeviceTest : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<BlockDevice>> leaves;
    for (int i = 0; i < 3; ++i) {
      memory_.push_back(MemoryDevice::Create({.size_bytes = kLeafBytes, .volatile_cache = true}));
      auto fault = FaultDevice::Create(memory_.back().get(), {});
      faults_.push_back(fault.get());
      leaves.push_back(std::move(fault));
    }
    auto device = StackDevices(std::move(leaves), {.chunk_bytes = GetParam()});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    queue_ = *RequestQueue::Create(device_.get(), {.hardware_queues = 2});
  }
  void FailOn(size_t leaf, Operation operation) {
    faults_[leaf]->SetPlan([operation](const DeviceRequest& request) {
      return FaultDevice::Verdict{.error = request.operation == operation ? EIO : 0};
    });
  }
  int Run(TestBio& bio) { return queue_->SubmitAndWait(&bio.bio); }
  uint8_t ByteAt(uint64_t offset_bytes) {
    if (GetParam() == 0) return memory_[offset_bytes / kLeafBytes]->bytes()[offset_bytes % kLeafBytes];
    const uint64_t chunk = offset_bytes / kChunkBytes;
    return memory_[chunk % 3]->bytes()[chunk / 3 * kChunkBytes + offset_bytes % kChunkBytes];
  }

  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<FaultDevice*> faults_;
  std::unique_ptr<BlockDevice> device_;
  std::unique_ptr<RequestQueue> queue_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, StackedDeviceTest, testing::Values(0, kChunkBytes),
                         [](const testing::TestParamInfo<uint64_t>& info) {
                           return info.param == 0 ? "Linear" : "Stripe";
                         });

TEST_P(StackedDeviceTest, HoldsWhatIsWritten) {
  EXPECT_EQ(device_->capabilities().size_bytes, 3 * kLeafBytes);
  std::vector<uint8_t> model(3 * kLeafBytes, 0);
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const uint64_t offset = random() % (model.size() / 512) * 512;
    const uint64_t length = std::min<uint64_t>(512 + random() % 300 * 512, model.size() - offset);
    TestBio write(Operation::kWrite, offset, length, 0, i % 250 + 1);
    // In several segments, so that cuts fall into the middle of some.
    write.segments.clear();
    for (uint64_t at = 0; at < length;) {
      const uint64_t piece = std::min<uint64_t>(length - at, 512 * (1 + random() % 60));
      write.segments.push_back({write.buffer.get() + at, piece});
      at += piece;
    }
    write.UseSegments();
    ASSERT_EQ(Run(write), 0);
    std::memset(model.data() + offset, i % 250 + 1, length);
    TestBio read(Operation::kRead, offset / 2 / 512 * 512, length);
    ASSERT_EQ(Run(read), 0);
    ASSERT_EQ(std::memcmp(read.buffer.get(), model.data() + read.bio.offset_bytes, length), 0) << i;
  }
  for (uint64_t at = 0; at < model.size(); at += 512) ASSERT_EQ(ByteAt(at), model[at]) << at;
}

TEST_P(StackedDeviceTest, DiscardAndZeroesReachTheirLeaves) {
  TestBio write(Operation::kWrite, 0, 3 * kLeafBytes, 0, 7);
  ASSERT_EQ(Run(write), 0);
  TestBio zeroes(Operation::kWriteZeroes, kLeafBytes - 4096, 8192);
  ASSERT_EQ(Run(zeroes), 0);
  for (uint64_t at = 0; at < 3 * kLeafBytes; at += 512) {
    ASSERT_EQ(ByteAt(at), at >= kLeafBytes - 4096 && at < kLeafBytes + 4096 ? 0 : 7) << at;
  }
}

TEST_P(StackedDeviceTest, AFlushReachesEveryLeafAndAnyFailureTheCaller) {
  TestBio flush(Operation::kFlush, 0, 0);
  ASSERT_EQ(Run(flush), 0);
  for (const auto& memory : memory_) EXPECT_EQ(memory->flushes(), 1U);
  for (size_t leaf = 0; leaf < 3; ++leaf) {
    queue_ = *RequestQueue::Create(device_.get(), {.hardware_queues = 1});  // a ledger that has not failed
    FailOn(leaf, Operation::kFlush);
    TestBio failing(Operation::kFlush, 0, 0);
    EXPECT_EQ(Run(failing), EIO) << leaf;
    faults_[leaf]->SetPlan({});
  }
}

TEST_P(StackedDeviceTest, OneFailedPieceFailsTheRequestOnce) {
  for (size_t leaf = 0; leaf < 3; ++leaf) {
    FailOn(leaf, Operation::kWrite);
    TestBio write(Operation::kWrite, 0, 3 * kLeafBytes);
    EXPECT_EQ(Run(write), EIO) << leaf;
    faults_[leaf]->SetPlan({});
  }
}

// Slow leaves: the request ends with the last of them, also when an early one has failed.
TEST_P(StackedDeviceTest, EndsWithTheSlowestPiece) {
  constexpr uint64_t kDelayUs = 30000;
  faults_[0]->SetPlan([](const DeviceRequest&) { return FaultDevice::Verdict{.error = EIO}; });
  std::atomic<bool> slow_done{false};
  faults_[2]->SetPlan([&slow_done](const DeviceRequest&) {
    slow_done = true;  // decided now, executed after the delay
    return FaultDevice::Verdict{.delay_us = kDelayUs};
  });
  const auto start = std::chrono::steady_clock::now();
  TestBio write(Operation::kWrite, 0, 3 * kLeafBytes, 0, 9);
  EXPECT_EQ(Run(write), EIO);
  EXPECT_TRUE(slow_done);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(kDelayUs));
  EXPECT_EQ(memory_[2]->bytes()[0], 9);
}

TEST(StackDevicesTest, Refusals) {
  const auto stack = [](std::vector<uint64_t> sizes, uint64_t chunk_bytes) {
    std::vector<std::unique_ptr<BlockDevice>> leaves;
    for (const uint64_t size : sizes) leaves.push_back(MemoryDevice::Create({.size_bytes = size}));
    return StackDevices(std::move(leaves), {.chunk_bytes = chunk_bytes}).status();
  };
  EXPECT_EQ(StatusToErrno(stack({}, 0)), EINVAL);
  EXPECT_EQ(StatusToErrno(stack({65536, 0}, 0)), EINVAL);
  EXPECT_EQ(StatusToErrno(stack({65536, 65536}, 1000)), EINVAL) << "no multiple of a block";
  EXPECT_EQ(StatusToErrno(stack({65536, 65536}, 512)), EINVAL) << "too many segments";
  EXPECT_EQ(StatusToErrno(stack({65536, 4096}, 16384)), EINVAL) << "a leaf is smaller than a chunk";
  EXPECT_TRUE(stack({65536, 40000}, 16384).ok());
}

TEST(StackDevicesTest, CapabilitiesAreThoseOfAll) {
  std::vector<std::unique_ptr<BlockDevice>> leaves;
  leaves.push_back(MemoryDevice::Create({.size_bytes = 65536, .max_queues = 2}));
  leaves.push_back(
      MemoryDevice::Create({.size_bytes = 65536, .volatile_cache = true, .native_fua = true, .max_queues = 4}));
  const auto device = StackDevices(std::move(leaves), {});
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->capabilities().volatile_write_cache);
  EXPECT_TRUE((*device)->HasVolatileCache());
  EXPECT_TRUE((*device)->capabilities().native_fua) << "the other leaf loses nothing";
  EXPECT_EQ((*device)->capabilities().max_queues, 2U);
  EXPECT_THAT((*device)->name(), testing::HasSubstr("linear device over"));
}

}  // namespace
}  // namespace elidefs::blockio
