// The io_uring device on an image file and on a loop device of its own. The loop tests need root; with CI=true they
// fail instead of being skipped where loop devices are missing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "blockio/request_queue.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

std::string RunShell(const std::string& command) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[256];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  const int status = pclose(pipe);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return status == 0 ? output : "failed: " + output;
}

class FileDeviceTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 16 << 20;

  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "elidefs-file-device-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    image_ = folder_ + "/image";
    std::ofstream(image_).put('\0');
    ASSERT_EQ(truncate(image_.c_str(), kSize), 0);
  }
  void TearDown() override {
    Close();
    if (!loop_.empty()) {
      EXPECT_EQ(RunShell("losetup -d " + loop_), "");
    }
    (void)RunShell("rm -rf '" + folder_ + "'");
  }
  void Close() {
    queue_.reset();
    device_.reset();
  }
  // True when a loop device over the image is there; otherwise the test has failed (CI) or must be skipped.
  bool AttachLoop() {
    const std::string output = RunShell("losetup -f --show --direct-io=on " + image_);
    if (output.rfind("/dev/loop", 0) == 0) {
      loop_ = output;
      return true;
    }
    const char* ci = std::getenv("CI");
    if (ci != nullptr && std::string(ci) == "true") ADD_FAILURE() << "no loop device: " << output;
    return false;
  }
  void Open(const std::string& path, const FileDeviceOptions& options = {}, uint32_t queues = 2, uint32_t depth = 16) {
    auto device = OpenFileDevice(path, options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto queue = RequestQueue::Create(device_.get(), {.hardware_queues = queues, .queue_depth = depth});
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }
  uint64_t LoopFlushes() {
    std::ifstream stat("/sys/block/" + loop_.substr(5) + "/stat");
    uint64_t value = 0;
    for (int field = 1; field <= 16; ++field) stat >> value;
    return value;
  }
  void ExpectError(const std::string& path, int error, const std::string& message,
                   const FileDeviceOptions& options = {}) {
    const auto device = OpenFileDevice(path, options);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(StatusToErrno(device.status()), error) << device.status();
    EXPECT_NE(device.status().message().find(message), absl::string_view::npos) << device.status();
    EXPECT_NE(device.status().message().find(path), absl::string_view::npos) << device.status();
  }
  void WriteReadFlush();
  void Hammer();

  std::string folder_;
  std::string image_;
  std::string loop_;
  std::unique_ptr<BlockDevice> device_;
  std::unique_ptr<RequestQueue> queue_;
};

void FileDeviceTest::WriteReadFlush() {
  // Larger than one transfer, in uneven segments.
  TestBio write(Operation::kWrite, 1 << 20, 3 << 20);
  for (size_t i = 0; i < write.bio.length_bytes; ++i) write.buffer.get()[i] = static_cast<uint8_t>(i * 31 + (i >> 12U));
  write.segments.clear();
  std::mt19937 random(5);
  for (uint64_t at = 0; at < write.bio.length_bytes;) {
    const uint64_t length = std::min<uint64_t>(4096 * (1 + random() % 7), write.bio.length_bytes - at);
    write.segments.push_back(iovec{write.buffer.get() + at, length});
    at += length;
  }
  write.UseSegments();
  ASSERT_EQ(queue_->SubmitAndWait(&write.bio), 0);
  EXPECT_EQ(write.bio.need, 1U);
  TestBio read(Operation::kRead, 1 << 20, 3 << 20);
  ASSERT_EQ(queue_->SubmitAndWait(&read.bio), 0);
  EXPECT_EQ(std::memcmp(read.buffer.get(), write.buffer.get(), 3 << 20), 0);
  EXPECT_EQ(queue_->ledger().AwaitBlocking(write.bio.need, nullptr), 0);
  EXPECT_EQ(queue_->Stats().flush.durable, 1U);
}

void FileDeviceTest::Hammer() {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 150; ++i) {
        const uint64_t offset = (t * 256 + random() % 256) * 4096;
        TestBio write(Operation::kWrite, offset, 4096, i % 20 == 0 ? kBioPreflush | kBioFua : 0U, static_cast<int>(i));
        TestBio read(Operation::kRead, offset, 4096);
        if (queue_->SubmitAndWait(&write.bio) != 0 || queue_->SubmitAndWait(&read.bio) != 0) wrong.fetch_add(1);
        if (std::memcmp(read.buffer.get(), write.buffer.get(), 4096) != 0) wrong.fetch_add(1);
        if (i % 10 == 0 && queue_->ledger().AwaitBlocking(write.bio.need, nullptr) != 0) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  const QueueStats stats = queue_->Stats();
  EXPECT_EQ(stats.flush.issued, stats.flush.durable);
}

TEST_F(FileDeviceTest, ImageCapabilities) {
  Open(image_);
  const DeviceCapabilities& caps = queue_->capabilities();
  EXPECT_EQ(caps.size_bytes, kSize);
  EXPECT_TRUE(caps.volatile_write_cache);
  EXPECT_FALSE(caps.native_fua);
  EXPECT_FALSE(caps.read_only);
  EXPECT_EQ(device_->name(), image_);
}

TEST_F(FileDeviceTest, ImageWriteReadFlush) {
  Open(image_);
  WriteReadFlush();
}

TEST_F(FileDeviceTest, ImageUnderLoad) {
  Open(image_, {}, 2, 4);
  Hammer();
}

TEST_F(FileDeviceTest, ImageDeepQueue) {
  Open(image_, {}, 1, 1024);
  std::vector<std::unique_ptr<TestBio>> bios;
  for (uint64_t i = 0; i < 3000; ++i) {
    bios.push_back(std::make_unique<TestBio>(i % 100 == 99 ? Operation::kFlush : Operation::kWrite,
                                             i % 100 == 99 ? 0 : i * 4096, i % 100 == 99 ? 0 : 4096));
    queue_->Submit(&bios.back()->bio);
  }
  queue_->Freeze();
  for (const auto& bio : bios) {
    EXPECT_EQ(bio->ended, 1);
    EXPECT_EQ(bio->bio.error, 0);
  }
}

TEST_F(FileDeviceTest, ImageZeroesAndDiscard) {
  Open(image_);
  ASSERT_TRUE(queue_->capabilities().write_zeroes) << "put TMPDIR on a filesystem that can punch holes";
  const AlignedBuffer data = MakeBuffer(16384, 0x77);
  ASSERT_EQ(queue_->Write(0, data.get(), 16384, nullptr), 0);
  TestBio zeroes(Operation::kWriteZeroes, 4096, 4096);
  TestBio discard(Operation::kDiscard, 8192, 4096);
  ASSERT_EQ(queue_->SubmitAndWait(&zeroes.bio), 0);
  ASSERT_EQ(queue_->SubmitAndWait(&discard.bio), 0);
  EXPECT_EQ(discard.bio.need, 1U);
  std::vector<uint8_t> read(16384);
  ASSERT_EQ(queue_->Read(0, read.data(), 16384), 0);
  EXPECT_EQ(read[4095], 0x77);
  EXPECT_EQ(read[4096], 0);
  EXPECT_EQ(read[12287], 0);
  EXPECT_EQ(read[12288], 0x77);
}

// What a thread left to the kernel's workers may be cancelled when it exits; that must not look like a failed flush.
TEST_F(FileDeviceTest, SubmittersMayExitAtOnce) {
  Open(image_, {}, 1, 64);
  std::vector<std::unique_ptr<TestBio>> bios;
  for (uint64_t i = 0; i < 200; ++i) {
    bios.push_back(std::make_unique<TestBio>(Operation::kWrite, i * 4096, 4096, i % 2 == 0 ? kBioFua : 0U));
    bios.push_back(std::make_unique<TestBio>(Operation::kFlush, 0, 0));
    std::thread([&] {
      queue_->Submit(&bios[bios.size() - 2]->bio);
      queue_->Submit(&bios.back()->bio);
    }).join();
  }
  queue_->Freeze();
  for (const auto& bio : bios) EXPECT_EQ(bio->bio.error, 0);
  EXPECT_FALSE(queue_->ledger().failed());
}

TEST_F(FileDeviceTest, AFileThatShrankAnswersEio) {
  Open(image_);
  ASSERT_EQ(truncate(image_.c_str(), 4096), 0);
  TestBio read(Operation::kRead, 0, 16384);
  EXPECT_EQ(queue_->SubmitAndWait(&read.bio), EIO);
  TestBio beyond(Operation::kRead, 8192, 4096);
  EXPECT_EQ(queue_->SubmitAndWait(&beyond.bio), EIO);
}

TEST_F(FileDeviceTest, ReadOnly) {
  Open(image_, {.read_only = true});
  TestBio write(Operation::kWrite, 0, 512);
  EXPECT_EQ(queue_->SubmitAndWait(&write.bio), EROFS);
  std::vector<uint8_t> data(4096);
  EXPECT_EQ(queue_->Read(0, data.data(), 4096), 0);
  // Readers share, a writer does not join them.
  EXPECT_TRUE(OpenFileDevice(image_, {.read_only = true}).ok());
  ExpectError(image_, EBUSY, "already in use");
}

TEST_F(FileDeviceTest, Refusals) {
  ExpectError(folder_ + "/missing", ENOENT, "no such file");
  ExpectError(folder_, EINVAL, "neither a file nor a block device");
  ExpectError("/dev/null", EINVAL, "neither a file nor a block device");
  Open(image_);
  ExpectError(image_, EBUSY, "already in use by another elidefs");
  EXPECT_TRUE(OpenFileDevice(image_, {.exclusive = false}).ok());
}

TEST_F(FileDeviceTest, AnImageBelowALoopDeviceIsRefusedForWriting) {
  if (!AttachLoop()) GTEST_SKIP() << "no loop device";
  ExpectError(image_, EBUSY, loop_);
  EXPECT_TRUE(OpenFileDevice(image_, {.read_only = true}).ok());
}

TEST_F(FileDeviceTest, LoopDeviceFlushesAreCountedByTheKernel) {
  if (!AttachLoop()) GTEST_SKIP() << "no loop device";
  Open(loop_);
  const DeviceCapabilities& caps = queue_->capabilities();
  EXPECT_EQ(caps.size_bytes, kSize);
  EXPECT_TRUE(caps.volatile_write_cache);
  const uint64_t before = LoopFlushes();
  WriteReadFlush();
  EXPECT_EQ(LoopFlushes() - before, 1U);
  // Serial callers: exactly one flush each; callers with nothing to flush: none.
  for (int i = 0; i < 5; ++i) {
    Ticket need = kNoNeed;
    const AlignedBuffer data = MakeBuffer(4096, i);
    ASSERT_EQ(queue_->Write(0, data.get(), 4096, &need), 0);
    ASSERT_EQ(queue_->ledger().AwaitBlocking(need, nullptr), 0);
    ASSERT_EQ(queue_->ledger().AwaitBlocking(need, nullptr), 0);
  }
  EXPECT_EQ(LoopFlushes() - before, 6U);
  EXPECT_EQ(queue_->Stats().flush.issued, 6U);
}

// E8: what was written while the device said "write through" is unproved once it says "write back".
TEST_F(FileDeviceTest, AWriteCacheThatIsSwitchedOnIsNoticed) {
  if (!AttachLoop()) GTEST_SKIP() << "no loop device";
  const std::string setting = "/sys/block/" + loop_.substr(5) + "/queue/write_cache";
  std::ofstream(setting) << "write through";
  auto device = OpenFileDevice(loop_, {});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  auto queue = RequestQueue::Create(device_.get(), {.write_cache_poll_ms = 5});
  ASSERT_TRUE(queue.ok()) << queue.status();
  queue_ = *std::move(queue);
  FlushLedger& ledger = queue_->ledger();
  ASSERT_FALSE(queue_->capabilities().volatile_write_cache) << setting << " cannot be set";
  Ticket need = kNoNeed;
  const AlignedBuffer data = MakeBuffer(4096, 1);
  ASSERT_EQ(queue_->Write(0, data.get(), 4096, &need), 0);
  TestBio fua(Operation::kWrite, 4096, 4096);
  fua.bio.flags = kBioPreflush | kBioFua;
  EXPECT_EQ(queue_->SubmitAndWait(&fua.bio), 0);
  EXPECT_EQ(ledger.AwaitBlocking(need, nullptr), 0);
  EXPECT_EQ(ledger.Stats().issued, 0U);  // E9
  const uint64_t before = LoopFlushes();
  std::ofstream(setting) << "write back";
  for (int i = 0; i < 1000 && !ledger.has_volatile_cache(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(ledger.has_volatile_cache());
  // The flush is asked for at once, by whoever is first.
  EXPECT_EQ(ledger.AwaitBlocking(need, nullptr), 0);
  EXPECT_EQ(queue_->SubmitAndWait(&fua.bio), 0);
  EXPECT_EQ(LoopFlushes() - before, 3U);
}

TEST_F(FileDeviceTest, LoopDeviceUnderLoad) {
  if (!AttachLoop()) GTEST_SKIP() << "no loop device";
  Open(loop_);
  Hammer();
  if (queue_->capabilities().write_zeroes) {
    TestBio zeroes(Operation::kWriteZeroes, 0, 1 << 20);
    EXPECT_EQ(queue_->SubmitAndWait(&zeroes.bio), 0);
    TestBio read(Operation::kRead, 0, 1 << 20);
    EXPECT_EQ(queue_->SubmitAndWait(&read.bio), 0);
    EXPECT_EQ(read.buffer.get()[4096], 0);
  }
}

TEST_F(FileDeviceTest, AMountedOrClaimedLoopDeviceIsRefused) {
  if (!AttachLoop()) GTEST_SKIP() << "no loop device";
  Open(loop_);
  ExpectError(loop_, EBUSY, "unmount it first");
  Close();
  RunShell("mkfs.ext4 -q -F " + loop_);
  ASSERT_EQ(mkdir((folder_ + "/mnt").c_str(), 0700), 0);
  ASSERT_EQ(RunShell("mount " + loop_ + " " + folder_ + "/mnt"), "");
  ExpectError(loop_, EBUSY, "mounted by the kernel");
  EXPECT_EQ(RunShell("umount " + folder_ + "/mnt"), "");
}

}  // namespace
}  // namespace elidefs::blockio
