// Rig: runs histories on a real volume over a device with a volatile cache and keeps what the device was asked.
//
// A recording holds everything a judge needs: the device with its history, the histories, and where in the device's
// history each call began and ended. Threads: a recording is made by one thread and then read by many.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "blockio/device/sector_image.h"
#include "blockio/device/stacked_device.h"
#include "blockio/device/test_devices.h"
#include "core/volume/internals.h"
#include "elidefs/volume.h"
#include "tests/simulator/model.h"
#include "tests/simulator/workload.h"

namespace elidefs::simulator {

// Hands requests to a device that somebody else owns, so that it outlives the volume. `Sever` cuts the connection, as
// when the process is killed: from then on every request fails and reaches nothing.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Sever() = 0;
  // The device to give to Volume::Open, once.
  virtual std::unique_ptr<BlockDevice> TakeDevice() = 0;
  static std::unique_ptr<Connection> To(BlockDevice* device);
};

// An image by mke2fs with every unused byte set to 0xDB, inode tables included, so that stale content is recognised.
std::vector<uint8_t> MakeDirtyImage(uint64_t size_bytes, const std::string& mke2fs_options);
// The smallest with a journal of the smallest legal size (1024 blocks).
std::vector<uint8_t> MakeSmallImage(uint32_t block_bytes);

// A clean image that holds the result of some calls, all of them durable: where many recordings begin.
struct PreparedImage {
  std::shared_ptr<const blockio::BaseImage> image;
  std::vector<Operation> operations;  // of the one thread
  InodeId folder = 0;                 // its folder
  absl::flat_hash_map<NodeId, InodeId> inodes;
  absl::flat_hash_set<NodeId> directories;
};

struct RigOptions {
  std::vector<uint8_t> image;
  std::shared_ptr<const blockio::BaseImage> shared_image;  // instead of `image`
  blockio::VolatileCacheDevice::Options device;
  VolumeOptions volume = QuietOptions();
  core::VolumeInternals internals;
  blockio::FaultDevice::Plan faults;  // may be empty; below a stacked device, where each leaf has it
  uint32_t leaves = 1;                // more: a linear device over so many parts, each with a cache of its own
  blockio::StackedDeviceOptions stacked;

  // One worker, no waiting for others' writes, no commits by age: fast and as repeatable as threads allow.
  static VolumeOptions QuietOptions();
};

class Recording {
 public:
  explicit Recording(RigOptions options);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Mounts and makes the folder of each thread, durably. Call once.
  absl::Status Start(uint32_t threads);
  // Instead: mounts the prepared image (which is `shared_image`). One thread; `operations` of RunAll follow on those of
  // the image.
  absl::Status StartFrom(const PreparedImage& prepared);
  // Runs each history on a thread of its own, all at once.
  absl::Status RunAll(std::vector<std::vector<Operation>> histories);
  // For loads that need more control: the runner of a thread; what was run is told by SetHistory afterwards.
  Runner& runner(uint32_t thread) { return *runners_[thread]; }
  void SetHistories(std::vector<std::vector<Operation>> histories);
  // Unmounts cleanly, or as a killed process would.
  absl::Status Finish();
  void Kill();
  // Mounts the same device again after Kill; runners of the new mount find their folders but no other node.
  absl::Status Restart();

  Volume& volume() { return *volume_; }
  blockio::VolatileCacheDevice& device() { return *device_; }
  const blockio::VolatileCacheDevice& device() const { return *device_; }
  const std::vector<History>& histories() const { return histories_; }
  // From this event on the folders exist.
  size_t first_event() const { return first_event_; }
  // How far `thread` was just before event `index`.
  std::vector<std::vector<Progress>> ProgressByEvent() const;
  static std::string Folder(uint32_t thread);

 private:
  void StackUp();
  absl::Status Mount();
  void EndMount();

  RigOptions options_;
  std::unique_ptr<blockio::VolatileCacheDevice> device_;
  std::vector<std::unique_ptr<BlockDevice>> parts_;  // what the faults of a stacked device's leaves are over
  std::unique_ptr<BlockDevice> top_;                 // what is mounted, unless it is the device itself
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Volume> volume_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<InodeId> folders_;
  std::vector<History> histories_;
  size_t first_event_ = 0;
  std::vector<Operation> earlier_;  // what the image began with
};

// Makes one by running `operations` on `image`.
absl::StatusOr<PreparedImage> Prepare(std::vector<uint8_t> image, std::vector<Operation> operations);

}  // namespace elidefs::simulator
