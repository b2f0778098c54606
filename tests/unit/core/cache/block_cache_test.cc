#include "core/cache/block_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/error.h"
#include "blockio/device/test_devices.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kBlockBytes = 1024;
constexpr BlockNumber kBlocks = 4096;

// Every byte of block n holds n's low 8 bits. Counts reads that reach the device; `fail_block` fails them.
class BlockCacheTest : public testing::Test {
 protected:
  BlockCacheTest() {
    std::vector<uint8_t> bytes(kBlockBytes * kBlocks);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / kBlockBytes);
    blockio::MemoryDeviceOptions options;
    options.size_bytes = bytes.size();
    memory_ = blockio::MemoryDevice::FromBytes(std::move(bytes), options);
    faults_ = blockio::FaultDevice::Create(memory_.get(), [this](const DeviceRequest& request) {
      blockio::FaultDevice::Verdict verdict;
      reads_.fetch_add(1);
      if (request.offset_bytes == fail_block_.load() * kBlockBytes) verdict.error = EIO;
      verdict.delay_us = delay_us_.load();
      return verdict;
    });
    queue_ = *blockio::RequestQueue::Create(faults_.get(), {});
  }
  std::unique_ptr<BlockCache> MakeCache(uint64_t limit_bytes) {
    return std::make_unique<BlockCache>(queue_.get(), kBlockBytes, kBlocks, limit_bytes);
  }

  std::atomic<uint64_t> reads_{0};
  std::atomic<uint64_t> fail_block_{~0ULL};
  std::atomic<uint64_t> delay_us_{0};
  std::unique_ptr<blockio::MemoryDevice> memory_;
  std::unique_ptr<blockio::FaultDevice> faults_;
  std::unique_ptr<blockio::RequestQueue> queue_;
};

TEST_F(BlockCacheTest, ReadsOnceAndVerifiesOnce) {
  const auto cache = MakeCache(1U << 20U);
  uint32_t verified = 0;
  const BlockCache::Verifier verify = [&](absl::Span<const uint8_t> bytes) {
    ++verified;
    EXPECT_EQ(bytes.size(), kBlockBytes);
    return absl::OkStatus();
  };
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<BufferRef> buffer = cache->Read(77, verify);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->data()[100], 77);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 512, 0U);
  }
  EXPECT_EQ(reads_, 1U);
  EXPECT_EQ(verified, 1U);
}

TEST_F(BlockCacheTest, ConcurrentReadersShareOneLoad) {
  const auto cache = MakeCache(1U << 20U);
  delay_us_ = 20000;
  std::vector<BufferRef> seen(8);
  std::vector<std::thread> threads;
  for (auto& slot : seen) {
    threads.emplace_back([&] { slot = *cache->Read(5, nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reads_, 1U);
  for (const BufferRef& buffer : seen) EXPECT_EQ(buffer, seen[0]);
}

TEST_F(BlockCacheTest, FailedLoadLeavesNothing) {
  const auto cache = MakeCache(1U << 20U);
  fail_block_ = 9;
  EXPECT_EQ(StatusToErrno(cache->Read(9, nullptr).status()), EIO);
  fail_block_ = ~0ULL;
  EXPECT_TRUE(cache->Read(9, nullptr).ok());
  const auto refuse = [](absl::Span<const uint8_t>) { return CorruptionError("no"); };
  EXPECT_EQ(StatusToErrno(cache->Read(10, refuse).status()), EUCLEAN);
  EXPECT_TRUE(cache->Read(10, nullptr).ok());
  // A block loaded without a verifier is checked by the first reader that brings one.
  EXPECT_EQ(StatusToErrno(cache->Read(10, refuse).status()), EUCLEAN);
}

TEST_F(BlockCacheTest, NumbersOffTheVolume) {
  const auto cache = MakeCache(1U << 20U);
  EXPECT_EQ(StatusToErrno(cache->Read(kBlocks, nullptr).status()), EUCLEAN);
  EXPECT_EQ(StatusToErrno(cache->GetZeroed(~0ULL).status()), EUCLEAN);
}

TEST_F(BlockCacheTest, EvictsUnreferencedOnly) {
  const auto cache = MakeCache(256 * kBlockBytes);
  const BufferRef held = *cache->Read(1, nullptr);
  held->data()[0] = 0xAB;
  for (BlockNumber block = 2; block < kBlocks; ++block) ASSERT_TRUE(cache->Read(block, nullptr).ok());
  const uint64_t before = reads_;
  EXPECT_EQ(*cache->Read(1, nullptr), held);
  EXPECT_EQ(reads_, before);
  uint32_t kept = 0;
  for (BlockNumber block = kBlocks - 128; block < kBlocks; ++block) {
    const uint64_t reads = reads_;
    ASSERT_TRUE(cache->Read(block, nullptr).ok());
    kept += reads_ == reads ? 1 : 0;
  }
  EXPECT_GT(kept, 100U);  // the recent ones are there
  const uint64_t reads = reads_;
  for (BlockNumber block = 2; block < 200; ++block) ASSERT_TRUE(cache->Read(block, nullptr).ok());
  EXPECT_EQ(reads_ - reads, 198U);  // the old ones are gone
}

TEST_F(BlockCacheTest, GetZeroedReusesTheLiveBuffer) {
  const auto cache = MakeCache(1U << 20U);
  const BufferRef read = *cache->Read(3, nullptr);
  const BufferRef zeroed = *cache->GetZeroed(3);
  EXPECT_EQ(read, zeroed);
  EXPECT_EQ(zeroed->data()[5], 0);
  EXPECT_EQ(*cache->Read(3, nullptr), zeroed);
  EXPECT_EQ((*cache->GetZeroed(4))->data()[0], 0);
  EXPECT_EQ(reads_, 1U);
}

TEST_F(BlockCacheTest, ForgetAndDropAllLoadAgain) {
  const auto cache = MakeCache(1U << 20U);
  const BufferRef old = *cache->Read(3, nullptr);
  old->data()[0] = 0xEE;
  cache->Forget(3);
  const BufferRef fresh = *cache->Read(3, nullptr);
  EXPECT_NE(old, fresh);
  EXPECT_EQ(fresh->data()[0], 3);
  EXPECT_EQ(old->data()[0], 0xEE);
  cache->DropAll();
  EXPECT_NE(*cache->Read(3, nullptr), fresh);
}

// Many threads over a small cache: whoever holds a block shares it with everybody else who reads it meanwhile.
TEST_F(BlockCacheTest, NeverTwoLiveBuffersOfOneBlock) {
  const auto cache = MakeCache(128 * kBlockBytes);
  std::vector<std::thread> threads;
  std::atomic<uint32_t> wrong{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      uint64_t state = t + 1;
      for (uint32_t i = 0; i < 4000; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const BlockNumber block = (state >> 33U) % 512;
        const BufferRef first = *cache->Read(block, nullptr);
        const BufferRef second = *cache->Read(block, nullptr);
        if (first != second || first->data()[7] != static_cast<uint8_t>(block)) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace elidefs::core
