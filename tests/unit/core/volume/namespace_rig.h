// A volume over an image in memory for the namespace tests, the model that it is compared with, and the two judges of
// the image it leaves behind: e2fsck and a loop mount by the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blockio/device/test_devices.h"
#include "core/volume/internals.h"
#include "elidefs/volume.h"

namespace elidefs::test_support {

// Opens the image read-write; Unmount closes the volume, which must succeed, and returns the bytes.
class MountedImage {
 public:
  explicit MountedImage(std::vector<uint8_t> image, size_t inode_cache_limit = 16384, bool read_only = false);
  Volume& volume() { return *volume_; }
  Volume* operator->() { return volume_.get(); }
  std::vector<uint8_t> Unmount();

 private:
  blockio::MemoryDevice* device_ = nullptr;  // the volume's
  std::unique_ptr<Volume> volume_;
};

// One inode of the model.
struct ModelNode {
  InodeId inode = 0;
  uint32_t mode = 0;
  uint32_t links = 0;
  uint32_t uid = 0, gid = 0;
  uint64_t size_bytes = 0;  // not of directories
  uint64_t device = 0;
  std::string target;
  std::map<std::string, std::shared_ptr<ModelNode>> names;  // of a directory, without "." and ".."

  bool IsDirectory() const { return S_ISDIR(mode); }
};
using ModelRef = std::shared_ptr<ModelNode>;

// `find`-like lines, sorted: path, type, mode, links, owner, group, size, target. Without lost+found.
std::vector<std::string> ListModel(const ModelNode& root);
std::vector<std::string> ListVolume(Volume& volume);
std::vector<std::string> ListByKernel(const std::vector<uint8_t>& image);

// What `e2fsck -fn` finds to complain about: lines that are neither a pass nor the summary; empty for a sound volume.
std::string Complaints(const std::vector<uint8_t>& image);

}  // namespace elidefs::test_support
