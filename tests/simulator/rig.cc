#include "tests/simulator/rig.h"

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "tests/simulator/oracles.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::simulator {
namespace {

// Shared by the connection and all queues, which may outlive each other.
struct Link {
  std::atomic<bool> severed{false};
};

class BorrowedQueue final : public DeviceQueue {
 public:
  BorrowedQueue(std::shared_ptr<Link> link, std::unique_ptr<DeviceQueue> below)
      : link_(std::move(link)), below_(std::move(below)) {}
  void Submit(DeviceRequest* request) override {
    if (link_->severed.load()) {
      request->complete(request, EIO);
    } else {
      below_->Submit(request);
    }
  }
  uint32_t Poll() override { return below_->Poll(); }

 private:
  const std::shared_ptr<Link> link_;
  const std::unique_ptr<DeviceQueue> below_;
};

class BorrowedDevice final : public BlockDevice {
 public:
  BorrowedDevice(std::shared_ptr<Link> link, BlockDevice* below) : link_(std::move(link)), below_(below) {}
  const DeviceCapabilities& capabilities() const override { return below_->capabilities(); }
  const std::string& name() const override { return below_->name(); }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override {
    absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = below_->CreateQueue(index, depth);
    if (!queue.ok()) return queue.status();
    return std::make_unique<BorrowedQueue>(link_, *std::move(queue));
  }

 private:
  const std::shared_ptr<Link> link_;
  BlockDevice* const below_;
};

class ConnectionImpl final : public Connection {
 public:
  explicit ConnectionImpl(BlockDevice* device) : device_(device) {}
  void Sever() override { link_->severed.store(true); }
  std::unique_ptr<BlockDevice> TakeDevice() override { return std::make_unique<BorrowedDevice>(link_, device_); }

 private:
  BlockDevice* const device_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
};

constexpr uint8_t kUnusedByte = 0xDB;
// Small enough for thousands of images, large enough for the load and for freed blocks that wait for a commit.
constexpr uint64_t kSmallImage1k = 8U << 20U;
constexpr uint64_t kSmallImage4k = 12U << 20U;

}  // namespace

std::unique_ptr<Connection> Connection::To(BlockDevice* device) {
  return std::make_unique<ConnectionImpl>(device);
}

std::vector<uint8_t> MakeDirtyImage(uint64_t size_bytes, const std::string& mke2fs_options) {
  const test_support::TempFile file(std::vector<uint8_t>(size_bytes, kUnusedByte));
  // The same bytes every time: whatever mke2fs would draw or take from the clock is given.
  test_support::MustRun(
      "E2FSPROGS_FAKE_TIME=1717200000 mke2fs -F -q -t ext4 -U 6b6d7d8e-0000-4000-8000-000000000001 -E "
      "nodiscard,lazy_itable_init=1,hash_seed=6b6d7d8e-0000-4000-8000-000000000002 " +
      mke2fs_options + " " + file.path());
  return file.Read();
}

std::vector<uint8_t> MakeSmallImage(uint32_t block_bytes) {
  const uint64_t size_bytes = block_bytes == 4096 ? kSmallImage4k : kSmallImage1k;
  return MakeDirtyImage(size_bytes, absl::StrCat("-b ", block_bytes, " -N 256 -J size=", block_bytes / 1024));
}

VolumeOptions RigOptions::QuietOptions() {
  VolumeOptions options;
  options.commit_interval_ms = 3600 * 1000;
  options.group_wait_ms = 0;
  options.hardware_queues = 1;
  options.worker_threads = 1;
  options.metadata_cache_bytes = 4U << 20U;
  return options;
}

Recording::Recording(RigOptions options)
    : options_(std::move(options)),
      device_(options_.shared_image != nullptr
                  ? blockio::VolatileCacheDevice::Create(options_.shared_image, options_.device)
                  : blockio::VolatileCacheDevice::Create(options_.image, options_.device)) {
  StackUp();
}

void Recording::StackUp() {
  if (options_.leaves == 1) {
    if (options_.faults) top_ = blockio::FaultDevice::Create(device_.get(), options_.faults);
    return;
  }
  constexpr uint64_t kPartUnit = 4096;
  const uint64_t size_bytes = device_->capabilities().size_bytes;
  const uint64_t part_bytes = size_bytes / options_.leaves / kPartUnit * kPartUnit;
  std::vector<std::unique_ptr<BlockDevice>> leaves;
  for (uint32_t leaf = 0; leaf < options_.leaves; ++leaf) {
    const uint64_t first = leaf * part_bytes;
    const bool last = leaf + 1 == options_.leaves;
    std::unique_ptr<BlockDevice> part = device_->Leaf(first, last ? size_bytes - first : part_bytes);
    if (!options_.faults) {
      leaves.push_back(std::move(part));
      continue;
    }
    leaves.push_back(blockio::FaultDevice::Create(part.get(), options_.faults));
    parts_.push_back(std::move(part));
  }
  absl::StatusOr<std::unique_ptr<BlockDevice>> stacked = blockio::StackDevices(std::move(leaves), options_.stacked);
  if (!stacked.ok()) throw std::invalid_argument(stacked.status().ToString());
  top_ = *std::move(stacked);
}

Recording::~Recording() {
  EndMount();
}

void Recording::EndMount() {
  runners_.clear();
  volume_.reset();
}

std::string Recording::Folder(uint32_t thread) {
  return absl::StrCat("/t", thread);
}

absl::Status Recording::Mount() {
  connection_ = Connection::To(top_ != nullptr ? top_.get() : device_.get());
  absl::StatusOr<std::unique_ptr<Volume>> volume =
      core::OpenVolumeWithInternals(connection_->TakeDevice(), options_.volume, options_.internals);
  if (!volume.ok()) return volume.status();
  volume_ = *std::move(volume);
  return absl::OkStatus();
}

absl::Status Recording::Start(uint32_t threads) {
  absl::Status status = Mount();
  if (!status.ok()) return status;
  for (uint32_t thread = 0; thread < threads; ++thread) {
    const absl::StatusOr<Entry> entry =
        volume_->MakeDirectory(kRootInodeId, Folder(thread).substr(1), 0755, Credentials{});
    if (!entry.ok()) return entry.status();
    folders_.push_back(entry->inode);
    runners_.push_back(std::make_unique<Runner>(volume_.get(), device_.get(), thread, entry->inode));
  }
  status = volume_->Flush();
  first_event_ = device_->event_count();
  return status;
}

absl::Status Recording::StartFrom(const PreparedImage& prepared) {
  const absl::Status status = Mount();
  if (!status.ok()) return status;
  folders_ = {prepared.folder};
  runners_.push_back(std::make_unique<Runner>(volume_.get(), device_.get(), 0, prepared.folder));
  for (const auto& [node, inode] : prepared.inodes) runners_[0]->Adopt(node, inode);
  for (const NodeId node : prepared.directories) runners_[0]->AdoptDirectory(node);
  earlier_ = prepared.operations;
  return absl::OkStatus();
}

absl::Status Recording::RunAll(std::vector<std::vector<Operation>> histories) {
  std::vector<absl::Status> results(histories.size());
  std::vector<Thread> threads;
  for (size_t thread = 0; thread < histories.size(); ++thread) {
    threads.emplace_back(absl::StrCat("load-", thread), [this, thread, &histories, &results] {
      results[thread] = runners_[thread]->Run(histories[thread], earlier_.size());
    });
  }
  absl::Status status;
  for (size_t thread = 0; thread < histories.size(); ++thread) {
    threads[thread].Join();
    status.Update(results[thread]);
  }
  SetHistories(std::move(histories));
  return status;
}

void Recording::SetHistories(std::vector<std::vector<Operation>> histories) {
  for (std::vector<Operation>& operations : histories) {
    operations.insert(operations.begin(), earlier_.begin(), earlier_.end());
    histories_.emplace_back(std::move(operations));
    if (options_.faults) histories_.back().AllowFailedWrites();
  }
}

absl::Status Recording::Finish() {
  for (const std::unique_ptr<Runner>& runner : runners_) runner->Release();
  runners_.clear();
  const absl::Status status = volume_->Close();
  volume_.reset();
  return status;
}

void Recording::Kill() {
  connection_->Sever();
  EndMount();
}

absl::Status Recording::Restart() {
  const absl::Status status = Mount();
  for (uint32_t thread = 0; status.ok() && thread < folders_.size(); ++thread) {
    runners_.push_back(std::make_unique<Runner>(volume_.get(), device_.get(), thread, folders_[thread]));
  }
  return status;
}

std::vector<std::vector<Progress>> Recording::ProgressByEvent() const {
  std::vector<std::vector<Progress>> result;
  std::vector<Progress> now(histories_.size(), Progress{.begun = earlier_.size(), .ended = earlier_.size()});
  for (size_t index = 0; index < device_->event_count(); ++index) {
    result.push_back(now);
    const blockio::DeviceEvent& event = device_->event(index);
    if (event.kind != blockio::DeviceEvent::Kind::kMark) continue;
    const size_t thread = event.id >> 40U;
    const size_t call = (event.id & ((uint64_t{1} << 40U) - 1)) >> 1U;
    if (thread >= now.size()) continue;
    if ((event.id & 1U) != 0) {
      now[thread].ended = call + 1;
    } else {
      now[thread].begun = call + 1;
    }
  }
  result.push_back(now);
  return result;
}

absl::StatusOr<PreparedImage> Prepare(std::vector<uint8_t> image, std::vector<Operation> operations) {
  RigOptions options;
  options.image = std::move(image);
  Recording recording(std::move(options));
  absl::Status status = recording.Start(1);
  if (!status.ok()) return status;
  status = recording.runner(0).Run(operations);
  if (!status.ok()) return status;
  PreparedImage prepared;
  prepared.folder = recording.runner(0).inode(kBaseNode);
  prepared.inodes = recording.runner(0).inodes();
  prepared.directories = recording.runner(0).directories();
  prepared.operations = std::move(operations);
  status = recording.Finish();
  if (!status.ok()) return status;
  prepared.image = std::make_shared<const blockio::BaseImage>(recording.device().ImageAfterCut(
      recording.device().event_count(), blockio::VolatileCacheDevice::Cut::kKeepAll, 0));
  return prepared;
}

}  // namespace elidefs::simulator
