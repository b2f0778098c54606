#include "tests/simulator/overlay_device.h"

#include <cerrno>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace elidefs::simulator {
namespace {

class OverlayDevice final : public BlockDevice {
 public:
  explicit OverlayDevice(blockio::SectorImage* image) : image_(image) {
    capabilities_.size_bytes = image->size_bytes();
    capabilities_.max_queues = 1;
    capabilities_.volatile_write_cache = true;  // as an image file; without, somebody would watch the setting
    capabilities_.write_zeroes = true;
  }
  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;

  int Execute(const DeviceRequest& request) {
    if (request.operation == Operation::kFlush) return 0;
    const uint64_t size = capabilities_.size_bytes;
    if (request.offset_bytes > size || request.length_bytes > size - request.offset_bytes) return EIO;
    MutexLock lock(mutex_);
    uint64_t at = request.offset_bytes;
    if (request.operation == Operation::kDiscard || request.operation == Operation::kWriteZeroes) {
      const std::vector<uint8_t> zeroes(request.length_bytes, 0);
      image_->Write(at, zeroes.data(), zeroes.size());
      return 0;
    }
    for (uint32_t i = 0; i < request.segment_count; ++i) {
      const iovec& segment = request.segments[i];
      auto* bytes = static_cast<uint8_t*>(segment.iov_base);
      if (request.operation == Operation::kWrite) {
        image_->Write(at, bytes, segment.iov_len);
      } else {
        image_->Read(at, bytes, segment.iov_len);
      }
      at += segment.iov_len;
    }
    return 0;
  }

 private:
  const std::string name_ = "overlay device";
  DeviceCapabilities capabilities_;
  Mutex mutex_;
  blockio::SectorImage* const image_ ABSL_PT_GUARDED_BY(mutex_);
};

class OverlayQueue final : public DeviceQueue {
 public:
  explicit OverlayQueue(OverlayDevice* device) : device_(device) {}
  void Submit(DeviceRequest* request) override { request->complete(request, device_->Execute(*request)); }

 private:
  OverlayDevice* const device_;
};

absl::StatusOr<std::unique_ptr<DeviceQueue>> OverlayDevice::CreateQueue(uint32_t /*index*/, uint32_t /*depth*/) {
  return std::make_unique<OverlayQueue>(this);
}

}  // namespace

std::unique_ptr<BlockDevice> MakeOverlayDevice(blockio::SectorImage* image) {
  return std::make_unique<OverlayDevice>(image);
}

}  // namespace elidefs::simulator
