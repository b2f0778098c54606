#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "blockio/device/test_devices.h"

namespace elidefs::blockio {
namespace {

class MemoryDeviceImpl final : public MemoryDevice {
 public:
  MemoryDeviceImpl(std::vector<uint8_t> bytes, const MemoryDeviceOptions& options) : bytes_(std::move(bytes)) {
    capabilities_.size_bytes = bytes_.size();
    capabilities_.max_queues = options.max_queues;
    capabilities_.volatile_write_cache = options.volatile_cache;
    capabilities_.native_fua = options.native_fua;
    capabilities_.discard = true;
    capabilities_.write_zeroes = true;
  }

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;
  std::vector<uint8_t>& bytes() override { return bytes_; }
  uint64_t flushes() const override { return flushes_.load(std::memory_order_relaxed); }

  int Execute(const DeviceRequest& request);

 private:
  const std::string name_ = "memory device";
  DeviceCapabilities capabilities_;
  std::vector<uint8_t> bytes_;
  std::atomic<uint64_t> flushes_{0};
};

class MemoryQueue final : public DeviceQueue {
 public:
  explicit MemoryQueue(MemoryDeviceImpl* device) : device_(device) {}
  void Submit(DeviceRequest* request) override { request->complete(request, device_->Execute(*request)); }

 private:
  MemoryDeviceImpl* const device_;
};

absl::StatusOr<std::unique_ptr<DeviceQueue>> MemoryDeviceImpl::CreateQueue(uint32_t /*index*/, uint32_t /*depth*/) {
  return std::make_unique<MemoryQueue>(this);
}

int MemoryDeviceImpl::Execute(const DeviceRequest& request) {
  if (request.operation == Operation::kFlush) {
    flushes_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  if (request.offset_bytes > bytes_.size() || request.length_bytes > bytes_.size() - request.offset_bytes) return EIO;
  uint8_t* at = bytes_.data() + request.offset_bytes;
  if (request.operation == Operation::kDiscard || request.operation == Operation::kWriteZeroes) {
    std::memset(at, 0, request.length_bytes);
    return 0;
  }
  for (uint32_t i = 0; i < request.segment_count; ++i) {
    const iovec& segment = request.segments[i];
    if (request.operation == Operation::kWrite) {
      std::memcpy(at, segment.iov_base, segment.iov_len);
    } else {
      std::memcpy(segment.iov_base, at, segment.iov_len);
    }
    at += segment.iov_len;
  }
  return 0;
}

}  // namespace

std::unique_ptr<MemoryDevice> MemoryDevice::Create(const MemoryDeviceOptions& options) {
  return FromBytes(std::vector<uint8_t>(options.size_bytes), options);
}

std::unique_ptr<MemoryDevice> MemoryDevice::FromBytes(std::vector<uint8_t> bytes, const MemoryDeviceOptions& options) {
  return std::make_unique<MemoryDeviceImpl>(std::move(bytes), options);
}

}  // namespace elidefs::blockio
