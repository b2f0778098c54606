// An image opened down to the allocators and the inode store, without a Volume above: the parts of core in the order in
// which a mount builds them, over a MemoryDevice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "blockio/device/test_devices.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/group_table.h"
#include "core/alloc/inode_allocator.h"
#include "core/inode/inode_store.h"
#include "core/ondisk/super_block.h"
#include "core/volume_context.h"

namespace elidefs::core {

SuperBlock SuperBlockOf(const std::vector<uint8_t>& image);
// ValidateSuperBlock on an image as a device with 512-byte sectors.
absl::StatusOr<Geometry> ValidateImage(const std::vector<uint8_t>& image, bool read_write);

// Throws when the image cannot be opened. The parts are in `context`, as in a mounted volume.
class VolumeRig {
 public:
  // Without `read_write` there is no journal and there are no allocators.
  explicit VolumeRig(std::vector<uint8_t> image, bool read_write = true, uint64_t cache_bytes = uint64_t{8} << 20U);
  ~VolumeRig();

  Handle Start(uint32_t credits);
  // Makes everything so far durable: what was freed is released.
  void Commit();
  // Shuts the journal down and returns what is on the device.
  std::vector<uint8_t> Finish();
  const std::vector<uint8_t>& image() const { return device_->bytes(); }
  blockio::MemoryDevice& device() { return *device_; }

 private:
  std::unique_ptr<blockio::MemoryDevice> device_;

 public:
  VolumeContext context;  // destroyed before the device
};

}  // namespace elidefs::core
