// Shared by the tests of extent trees and directories: an image on a memory device with everything below the inode
// store (queue, cache, real journal, groups, allocator), and inodes read from and written to their table by code of its
// own. Owns the device. Threads: one, besides the journal's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "blockio/device/test_devices.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/group_table.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::core::mapping_test {

// How often a test with random damage tries; each round copies a volume, which sanitizers make slow.
#ifdef ELIDEFS_SANITIZED
inline constexpr int kHostileRounds = 40;
#else
inline constexpr int kHostileRounds = 200;
#endif

class MappingRig {
 public:
  // Failures are GoogleTest failures and leave `usable()` false. `read_write`: as what the superblock is checked;
  // volumes without extents pass for reading only.
  explicit MappingRig(std::vector<uint8_t> image, bool read_write = true);
  ~MappingRig();

  bool usable() const { return usable_; }
  VolumeContext& context() { return context_; }
  const Geometry& geometry() const { return context_.geometry; }
  uint64_t SectorsPerBlock() const { return geometry().block_bytes / 512; }

  InodeRef Load(InodeNumber inode);
  // 1 credit.
  void Store(Handle& handle, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  Handle Start(uint32_t credits);
  // Makes everything durable, so that freed blocks can be used again.
  void Commit();
  // Ends the journal, corrects the superblock's free counts and returns the volume. Nothing works afterwards.
  std::vector<uint8_t> Finish();

 private:
  void Open(std::vector<uint8_t> image, bool read_write);
  std::vector<BlockRange> JournalBlocks();

  std::unique_ptr<blockio::MemoryDevice> device_;
  VolumeContext context_;
  bool usable_ = false;
};

// mke2fs with a journal, 128-byte-aligned defaults of ext4, then debugfs commands, one a line.
std::vector<uint8_t> MakeMappingImage(uint32_t size_mib, const std::string& mke2fs_options,
                                      const std::string& debugfs_commands);
InodeNumber InodeOfPath(const std::vector<uint8_t>& image, const std::string& path);
// What e2fsck -fn complains about or remarks; empty for a sound volume.
std::string Complaints(const std::vector<uint8_t>& image);

// The image after `work` ran on a kernel mount of it in `directory`; needs root. `mount_options` may be empty.
std::vector<uint8_t> ChangeInKernel(const std::vector<uint8_t>& image, const std::string& mount_options,
                                    const std::function<void(const std::string& directory)>& work);

}  // namespace elidefs::core::mapping_test
