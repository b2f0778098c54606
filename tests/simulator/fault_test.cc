// What users get when the device fails (rule E4 and the error table of docs/flush_elision.md): failing flushes, journal
// writes and data writes, and a device that vanishes.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/super_block.h"
#include "tests/simulator/judge.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/rig.h"

namespace elidefs::simulator {
namespace {

using Verdict = blockio::FaultDevice::Verdict;

constexpr uint64_t kBlock = 4096;
constexpr uint8_t kPoison = 0x5A;  // data that the device refuses in some tests
constexpr uint64_t kLongDelayUs = 200000;

bool IsPoison(const DeviceRequest& request) {
  if (request.operation != elidefs::Operation::kWrite || request.segment_count == 0) return false;
  const auto* bytes = static_cast<const uint8_t*>(request.segments[0].iov_base);
  return bytes[0] == kPoison && std::memcmp(bytes, bytes + 1, request.segments[0].iov_len - 1) == 0;
}

// A volume over faults over memory with a volatile cache.
class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = blockio::MemoryDevice::FromBytes(MakeSmallImage(1024), {.volatile_cache = true});
    faults_ = blockio::FaultDevice::Create(memory_.get(), {});
    Mount(false);
  }
  void TearDown() override {
    files_.clear();
    volume_.reset();
  }

  void Mount(bool read_only) {
    connection_ = Connection::To(faults_.get());
    VolumeOptions options = RigOptions::QuietOptions();
    options.read_only = read_only;
    absl::StatusOr<std::unique_ptr<Volume>> volume = Volume::Open(connection_->TakeDevice(), options);
    ASSERT_TRUE(volume.ok()) << volume.status();
    volume_ = *std::move(volume);
  }
  // The failed volume is dropped and mounted again from what the device holds. A volume marked with errors is mounted
  // read-only until e2fsck has seen it.
  void MountAgain() {
    files_.clear();
    volume_.reset();
    faults_->SetPlan({});
    Mount(true);
  }

  absl::StatusOr<InodeId> Create(const std::string& name) {
    absl::StatusOr<Entry> entry = volume_->MakeNode(kRootInodeId, name, S_IFREG | 0644, 0, Credentials{});
    if (!entry.ok()) return entry.status();
    return entry->inode;
  }
  File& Open(InodeId inode) {
    const uint32_t flags = volume_->read_only() ? kOpenRead : kOpenRead | kOpenWrite;
    absl::StatusOr<std::unique_ptr<File>> file = volume_->OpenFile(inode, flags);
    if (!file.ok()) throw std::runtime_error(file.status().ToString());
    files_.push_back(*std::move(file));
    return *files_.back();
  }
  // A file with one block of `fill`, durable.
  InodeId SyncedFile(const std::string& name, uint8_t fill) {
    const absl::StatusOr<InodeId> inode = Create(name);
    if (!inode.ok()) throw std::runtime_error(inode.status().ToString());
    File& file = Open(*inode);
    EXPECT_TRUE(file.Write(0, std::vector<uint8_t>(kBlock, fill)).ok());
    EXPECT_TRUE(file.Sync(false).ok());
    return *inode;
  }
  std::vector<uint8_t> ReadAll(const std::string& name) {
    const absl::StatusOr<Entry> entry = volume_->LookupPath("/" + name);
    if (!entry.ok()) return {};
    std::vector<uint8_t> bytes(static_cast<size_t>(entry->attributes.st_size));
    const absl::StatusOr<size_t> got = Open(entry->inode).Read(0, absl::MakeSpan(bytes));
    bytes.resize(got.ok() ? *got : 0);
    return bytes;
  }
  void ExpectReadOnlyWithReason() {
    const absl::StatusOr<InodeId> created = Create("too late");
    EXPECT_EQ(ErrnoOf(created.status()), EROFS) << created.status();
    EXPECT_TRUE(volume_->read_only());
    EXPECT_TRUE(volume_->Stats().read_only);
    EXPECT_NE(volume_->Stats().read_only_reason, "");
  }

  std::unique_ptr<blockio::MemoryDevice> memory_;
  std::unique_ptr<blockio::FaultDevice> faults_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Volume> volume_;
  std::vector<std::unique_ptr<File>> files_;
};

TEST_F(FaultTest, OneFailedFlushFailsTheLeafForever) {
  const InodeId stable = SyncedFile("stable", 1);
  const InodeId unlucky = SyncedFile("unlucky", 2);
  File& before = Open(unlucky);
  ASSERT_TRUE(before.Write(0, std::vector<uint8_t>(kBlock, 3)).ok());
  const auto failed = std::make_shared<std::atomic<int>>(0);
  faults_->SetPlan([failed](const DeviceRequest& request) {
    Verdict verdict;
    if (request.operation == elidefs::Operation::kFlush && failed->fetch_add(1) == 0) verdict.error = EIO;
    return verdict;
  });
  EXPECT_EQ(ErrnoOf(before.Sync(true)), EIO);
  // Later flushes would succeed: none is even tried.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ErrnoOf(before.Sync(true)), EIO) << i;
  EXPECT_EQ(ErrnoOf(before.Sync(false)), EIO);
  EXPECT_EQ(ErrnoOf(Open(unlucky).Sync(true)), EIO) << "also a description opened after the failure";
  EXPECT_TRUE(Open(stable).Sync(true).ok()) << "what was stable stays stable";
  EXPECT_TRUE(volume_->Stats().flushes.leaf_failed);
  ExpectReadOnlyWithReason();
  EXPECT_EQ(ReadAll("stable"), std::vector<uint8_t>(kBlock, 1)) << "the mount stays readable";
  MountAgain();
  EXPECT_EQ(ReadAll("stable"), std::vector<uint8_t>(kBlock, 1));
  EXPECT_EQ(ReadAll("unlucky").size(), kBlock);
}

// Other syncs wait for the same flush, and more come while it is in flight: each gets EIO exactly once.
TEST_F(FaultTest, EveryWaiterOfAFailedFlushIsTold) {
  std::vector<File*> files;
  for (int i = 0; i < 8; ++i) files.push_back(&Open(SyncedFile(absl::StrCat("f", i), 1)));
  for (File* file : files) ASSERT_TRUE(file->Write(0, std::vector<uint8_t>(kBlock, 2)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  faults_->SetPlan([](const DeviceRequest& request) {
    Verdict verdict;
    if (request.operation == elidefs::Operation::kFlush) verdict = {.error = EIO, .delay_us = kLongDelayUs};
    return verdict;
  });
  std::vector<std::promise<int>> results(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    files[i]->SyncAsync(true, [&results, i](int error) { results[i].set_value(error); });
  }
  for (std::promise<int>& result : results) {
    std::future<int> future = result.get_future();
    ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "a waiter was forgotten";
    EXPECT_EQ(future.get(), EIO);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // let the callbacks leave their promises
}

TEST_F(FaultTest, FailedJournalWriteAbortsAndStaysReadable) {
  SyncedFile("kept", 1);
  const absl::StatusOr<InodeId> lost = Create("lost");
  ASSERT_TRUE(lost.ok());
  File& file = Open(*lost);
  // Everything that is written from here on belongs to the commit.
  faults_->SetPlan([](const DeviceRequest& request) {
    Verdict verdict;
    if (request.operation == elidefs::Operation::kWrite) verdict.error = EIO;
    return verdict;
  });
  EXPECT_EQ(ErrnoOf(file.Sync(false)), EIO);
  EXPECT_EQ(ErrnoOf(file.Sync(false)), EIO);
  ExpectReadOnlyWithReason();
  EXPECT_EQ(ReadAll("kept"), std::vector<uint8_t>(kBlock, 1));
  MountAgain();
  EXPECT_EQ(ReadAll("kept"), std::vector<uint8_t>(kBlock, 1));
}

TEST_F(FaultTest, FailedDataWriteIsToldOnceToEachDescription) {
  const InodeId inode = SyncedFile("victim", 1);
  SyncedFile("other", 1);
  File& writer = Open(inode);
  File& bystander = Open(inode);
  faults_->SetPlan([](const DeviceRequest& request) {
    Verdict verdict;
    if (IsPoison(request)) verdict.error = EIO;
    return verdict;
  });
  const absl::StatusOr<size_t> written = writer.Write(0, std::vector<uint8_t>(kBlock, kPoison));
  const absl::StatusOr<size_t> appended = writer.Write(kBlock, std::vector<uint8_t>(kBlock, kPoison));
  const int synced = ErrnoOf(writer.Sync(true));
  EXPECT_TRUE(ErrnoOf(written.status()) == EIO || ErrnoOf(appended.status()) == EIO || synced == EIO)
      << written.status() << appended.status() << synced;
  EXPECT_EQ(ErrnoOf(bystander.Sync(true)), EIO);
  // One bad data block is no reason to give the volume up.
  EXPECT_FALSE(volume_->read_only());
  EXPECT_TRUE(Create("afterwards").ok());
  // Old content, or nothing; never another file's.
  for (const uint8_t byte : ReadAll("victim")) ASSERT_TRUE(byte == 1 || byte == 0) << int{byte};
  faults_->SetPlan({});
  EXPECT_TRUE(writer.Write(0, std::vector<uint8_t>(kBlock, 4)).ok());
  EXPECT_TRUE(writer.Sync(true).ok());
  files_.clear();
  EXPECT_TRUE(volume_->Close().ok());
  volume_.reset();
  EXPECT_EQ(CheckWithE2fsck(ImageFile(memory_->bytes())), "");
}

TEST_F(FaultTest, FailedAppendExposesNoStaleBlocks) {
  const absl::StatusOr<InodeId> inode = Create("victim");
  ASSERT_TRUE(inode.ok());
  faults_->SetPlan([](const DeviceRequest& request) {
    Verdict verdict;
    if (IsPoison(request)) verdict.error = EIO;
    return verdict;
  });
  File& file = Open(*inode);
  (void)file.Write(0, std::vector<uint8_t>(4 * kBlock, kPoison));
  (void)file.Sync(false);
  for (const uint8_t byte : ReadAll("victim")) ASSERT_EQ(byte, 0);
  faults_->SetPlan({});
  files_.clear();
  ASSERT_TRUE(volume_->Close().ok());
  volume_.reset();
  EXPECT_EQ(CheckWithE2fsck(ImageFile(memory_->bytes())), "");
  Mount(false);
  for (const uint8_t byte : ReadAll("victim")) ASSERT_EQ(byte, 0);
}

TEST_F(FaultTest, VanishedDeviceAnswersAndUnmounts) {
  const InodeId inode = SyncedFile("f", 1);
  File& file = Open(inode);
  faults_->SetPlan([](const DeviceRequest&) { return Verdict{.error = EIO}; });
  // The write may be accepted (write-behind); the sync must not be.
  (void)file.Write(0, std::vector<uint8_t>(kBlock, 2));
  EXPECT_EQ(ErrnoOf(file.Sync(true)), EIO);
  EXPECT_EQ(ErrnoOf(file.Sync(false)), EIO);
  const absl::StatusOr<InodeId> created = Create("g");
  if (created.ok()) {
    EXPECT_EQ(ErrnoOf(Open(*created).Sync(false)), EIO);
  }
  files_.clear();
  std::future<absl::Status> closed = std::async(std::launch::async, [this] { return volume_->Close(); });
  ASSERT_EQ(closed.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "unmount hangs";
  EXPECT_FALSE(closed.get().ok());
  MountAgain();
  EXPECT_EQ(ReadAll("f").size(), kBlock);
}

// The log holds a superblock that is older than the mark: replayed over it, the next mount but one would be read-write.
TEST_F(FaultTest, TheErrorMarkSurvivesTheReplay) {
  const InodeId orphan = SyncedFile("orphan", 1);
  Open(orphan);
  ASSERT_TRUE(volume_->Unlink(kRootInodeId, "orphan").ok());
  ASSERT_TRUE(volume_->Flush().ok());  // the orphan list begins in the superblock, which is in the log now
  connection_->Sever();
  files_.clear();
  volume_.reset();
  core::SuperBlock super;
  uint8_t* const bytes = memory_->bytes().data() + core::kSuperBlockOffsetBytes;
  std::memcpy(&super, bytes, sizeof(super));
  super.s_state = static_cast<uint16_t>(super.s_state | core::kStateErrors);
  core::SealSuperBlock(&super);
  std::memcpy(bytes, &super, sizeof(super));
  for (int mount = 0; mount < 3; ++mount) {
    Mount(false);
    EXPECT_TRUE(volume_->read_only()) << "mount " << mount;
    EXPECT_TRUE(volume_->Close().ok());
    volume_.reset();
  }
}

// The Nth flush or the Nth write of a mixed load fails; what was acknowledged before is there after a power cut.
class FailingDeviceTest : public testing::TestWithParam<elidefs::Operation> {};

TEST_P(FailingDeviceTest, WhatWasAcknowledgedSurvives) {
  const elidefs::Operation kind = GetParam();
  const std::vector<Operation> operations = GenerateWorkload({.seed = 11, .operations = 80});
  const std::vector<uint8_t> image = MakeSmallImage(1024);
  size_t failures = 0;
  for (int nth = 0; nth < 40; ++nth) {
    const auto armed = std::make_shared<std::atomic<bool>>(false);
    const auto seen = std::make_shared<std::atomic<int>>(0);
    RigOptions options;
    options.image = image;
    options.faults = [armed, seen, nth, kind](const DeviceRequest& request) {
      Verdict verdict;
      if (armed->load() && request.operation == kind && seen->fetch_add(1) == nth) verdict.error = EIO;
      return verdict;
    };
    Recording recording(std::move(options));
    ASSERT_TRUE(recording.Start(1).ok());
    armed->store(true);
    const absl::Status status = recording.RunAll({operations});
    if (!status.ok()) ++failures;
    recording.Kill();
    JudgeOptions judge;
    judge.random_per_cut = 0;
    judge.keep_all = true;
    judge.all_steps_every = 0;
    judge.check_with_e2fsck = false;
    judge.allow_read_only = true;
    judge.first_event = recording.device().event_count();
    const JudgeReport report = Judge(recording, judge);
    EXPECT_TRUE(report.violations.empty()) << nth << ": " << report.Summary() << "\nthe load ended with " << status;
  }
  EXPECT_GT(failures, 5U) << "hardly anything failed: the test proves nothing";
}
INSTANTIATE_TEST_SUITE_P(Kinds, FailingDeviceTest,
                         testing::Values(elidefs::Operation::kFlush, elidefs::Operation::kWrite),
                         [](const testing::TestParamInfo<elidefs::Operation>& info) {
                           return info.param == elidefs::Operation::kFlush ? "Flush" : "Write";
                         });

}  // namespace
}  // namespace elidefs::simulator
