// Opening the source of a FileDevice: what it is, what it can do, and whether it is safe to use. Everything that asks
// the kernel about an image file or a block device is here; no I/O ring.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

// An open descriptor, closed on destruction. Closing also gives up the lock and the exclusive claim.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd();

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct FileSource {
  OwnedFd fd;
  OwnedFd backing_lock;    // of a loop device's file
  dev_t block_device = 0;  // 0: an image file
  DeviceCapabilities capabilities;
};

// Opens, claims and locks `path` and reads its capabilities. Errors as OpenFileDevice documents them.
absl::StatusOr<FileSource> OpenFileSource(const std::string& path, const FileDeviceOptions& options);

// Whether a block device has a volatile write cache by what sysfs says now. Unknown counts as volatile: a flush too
// many is safe.
bool HasVolatileCache(dev_t device);

// Whether data on device number `device` ends up on a FUSE mount of type fuse.elidefs: the filesystem with that number
// is one, or a loop device's backing file or a device-mapper or md member leads to one.
bool LivesOnElidefs(dev_t device);

}  // namespace elidefs::blockio
