// Workload: seeded mixed loads and the thread that runs one on a volume.
//
// Generation looks at the model only, so a seed gives the same calls whatever the volume does; every call is legal and
// has to succeed. Threads: one Runner per thread, each with a folder of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "blockio/device/test_devices.h"
#include "elidefs/volume.h"
#include "tests/simulator/model.h"

namespace elidefs::simulator {

struct WorkloadOptions {
  uint64_t seed = 1;
  size_t operations = 200;
  size_t most_files = 20;
  uint64_t most_file_bytes = 192U << 10U;
  uint64_t most_total_bytes = 1536U << 10U;  // leaves room for blocks that wait for a commit
  uint64_t most_write_bytes = 40U << 10U;
  uint32_t sync_percent = 18;  // share of calls that sync
};
std::vector<Operation> GenerateWorkload(const WorkloadOptions& options);

// Numbers of the marks that a Runner puts into the device's history.
inline constexpr uint64_t MarkNumber(uint32_t thread, size_t call, bool end) {
  return (uint64_t{thread} << 40U) | (uint64_t{call} << 1U) | (end ? 1U : 0U);
}

class Runner {
 public:
  // All borrowed. `device` receives the marks and may be null. `base` is the folder of the history.
  Runner(Volume* volume, blockio::VolatileCacheDevice* device, uint32_t thread, InodeId base);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Stops at the first call that fails; the message names the call. Calls are numbered from `first_call` on.
  absl::Status Run(const std::vector<Operation>& operations, size_t first_call = 0);
  // Runs one call with its marks.
  absl::Status RunOne(size_t call, const Operation& operation);
  // Closes every file and gives every reference back.
  void Release();

  // After a new mount: the file is known by its inode alone.
  void Adopt(NodeId node, InodeId inode) { inodes_[node] = inode; }
  void AdoptDirectory(NodeId node) { directories_.insert(node); }
  InodeId inode(NodeId node) const { return inodes_.at(node); }
  const absl::flat_hash_map<NodeId, InodeId>& inodes() const { return inodes_; }
  const absl::flat_hash_set<NodeId>& directories() const { return directories_; }
  // The open description of the file; opens it if necessary.
  absl::StatusOr<File*> Open(NodeId node);
  bool IsOpen(NodeId node) const { return files_.count(node) != 0 && files_.at(node) != nullptr; }

 private:
  absl::Status Execute(const Operation& operation);
  absl::Status Sync(const Operation& operation);
  void Remember(NodeId node, const Entry& entry);
  bool IsDirectory(NodeId node) const { return node == kBaseNode || directories_.contains(node); }

  Volume* const volume_;
  blockio::VolatileCacheDevice* const device_;
  const uint32_t thread_;
  absl::flat_hash_map<NodeId, InodeId> inodes_;
  // In order: what is released at the end must not come in the order of a hash table, which differs from run to run.
  std::map<NodeId, uint64_t> lookups_;
  std::map<NodeId, std::unique_ptr<File>> files_;
  absl::flat_hash_set<NodeId> directories_;
};

// The tree below `folder` (a path of `volume`), contents included.
absl::StatusOr<ObservedTree> ObserveVolume(Volume* volume, const std::string& folder);

}  // namespace elidefs::simulator
