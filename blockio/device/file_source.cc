#include "blockio/device/file_source.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/error.h"
#include "blockio/device/loop_devices.h"
#include "blockio/device/sysfs.h"

namespace elidefs::blockio {
namespace {

constexpr uint64_t kMaxTransferBytes = 1U << 20U;
// Loop on dm on loop: deeper stacks than this are not followed.
constexpr int kMaxStackDepth = 8;
// udev takes a shared lock for a moment when a block device appears or is closed by a writer.
constexpr int kBlockLockAttempts = 20;
constexpr auto kBlockLockDelay = std::chrono::milliseconds(25);

uint64_t QueueLimit(dev_t device, absl::string_view name, uint64_t fallback) {
  const std::optional<std::string> line = ReadLine(absl::StrCat(DiskFolder(device), "/queue/", name));
  uint64_t value = 0;
  return line.has_value() && absl::SimpleAtoi(absl::StripAsciiWhitespace(*line), &value) ? value : fallback;
}

// The disk's name below /sys/block.
std::string DiskName(dev_t device) {
  std::error_code error;
  return std::filesystem::canonical(DiskFolder(device), error).filename().string();
}

bool IsElidefsMount(dev_t device) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string number = absl::StrCat(major(device), ":", minor(device));
  std::string line;
  while (std::getline(mounts, line)) {
    // proc(5): id parent major:minor root mountpoint options [tags] - type source superoptions
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 3 || fields[2] != number || dash == fields.end() || dash + 1 == fields.end()) continue;
    if (*(dash + 1) == "fuse.elidefs") return true;
  }
  return false;
}

bool LivesOnElidefsAt(dev_t device, int depth) {
  if (depth > kMaxStackDepth) return false;
  if (IsElidefsMount(device)) return true;
  const std::string disk = DiskFolder(device);
  if (const std::optional<LoopDevice> loop = ReadLoopDevice(DiskName(device)); loop.has_value()) {
    if (LivesOnElidefsAt(loop->filesystem, depth + 1)) return true;
    struct stat attributes {};
    if (stat(loop->backing_path.c_str(), &attributes) == 0 && S_ISBLK(attributes.st_mode) &&
        LivesOnElidefsAt(attributes.st_rdev, depth + 1)) {
      return true;
    }
  }
  for (const std::string& member : ListDirectory(absl::StrCat(disk, "/slaves"))) {
    const auto number = ReadLine(absl::StrCat(disk, "/slaves/", member, "/dev"));
    if (!number.has_value()) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(*number, ':');
    unsigned member_major = 0;
    unsigned member_minor = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &member_major) && absl::SimpleAtoi(parts[1], &member_minor) &&
        LivesOnElidefsAt(makedev(member_major, member_minor), depth + 1)) {
      return true;
    }
  }
  return false;
}

absl::Status OpenError(int error, const std::string& path, bool block_device) {
  switch (error) {
    case ENOENT:
      return ErrnoError(error, absl::StrCat(path, ": no such file or device"));
    case EACCES:
    case EPERM:
      return ErrnoError(error, absl::StrCat(path, ": permission denied; use sudo, or give your user access to it"));
    case EROFS:
      return ErrnoError(error, absl::StrCat(path, ": it cannot be written; mount it read-only (-o ro)"));
    case EBUSY:
      return ErrnoError(error, absl::StrCat(path,
                                            ": in use, mounted by the kernel or claimed by another program; "
                                            "unmount it first (findmnt ",
                                            path, ", lsblk ", path, ")"));
    case EINVAL:
      return ErrnoError(error, absl::StrCat(path,
                                            ": the filesystem it is on does not support O_DIRECT; "
                                            "move the image to ext4, xfs or btrfs"));
    default:
      return ErrnoError(
          error, absl::StrCat(path, ": cannot open this ", block_device ? "device" : "file", ": ", strerror(error)));
  }
}

absl::Status Lock(int fd, const std::string& path, const FileDeviceOptions& options, bool block_device) {
  const int operation = (options.read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;
  for (int attempt = 1; flock(fd, operation) != 0; ++attempt) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoError(errno, absl::StrCat(path, ": cannot lock it: ", strerror(errno)));
    if (!block_device || attempt >= kBlockLockAttempts) {
      return ErrnoError(EBUSY, absl::StrCat(path, ": already in use by another elidefs; unmount that one first"));
    }
    std::this_thread::sleep_for(kBlockLockDelay);
  }
  return absl::OkStatus();
}

// A file is not written below a loop device's user.
absl::Status RefuseBelowLoopDevice(const struct stat& file, const std::string& path) {
  for (const LoopDevice& loop : ListLoopDevices()) {
    if (!loop.IsOver(file)) continue;
    return ErrnoError(EBUSY, absl::StrCat(path, ": in use as the backing file of ", loop.name, "; use ", loop.name,
                                          " instead, or detach it (losetup -d ", loop.name, ")"));
  }
  return absl::OkStatus();
}

// Nor a loop device beside another one over the same bytes, or over a file that an elidefs serves by itself. For that
// the file is locked as well, shared: disjoint loop devices over one file may be used at the same time.
absl::Status ClaimBackingFile(const LoopDevice& loop, const std::string& path, OwnedFd* lock) {
  for (const LoopDevice& other : ListLoopDevices()) {
    if (other.name == loop.name || !other.Overlaps(loop)) continue;
    return ErrnoError(EBUSY, absl::StrCat(path, ": ", other.name, " is over the same file (", loop.backing_path,
                                          "); detach one of them (losetup -d ", other.name, ")"));
  }
  *lock = OwnedFd(open(loop.backing_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat attributes {};
  if (lock->get() < 0 || fstat(lock->get(), &attributes) != 0 || !loop.IsOver(attributes)) {
    return ErrnoError(EBUSY, absl::StrCat(path, ": its backing file has no name here any more (", loop.backing_path,
                                          "), so it cannot be told whether somebody else writes it; detach ", loop.name,
                                          " and attach the file by a name that exists"));
  }
  while (flock(lock->get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return ErrnoError(EBUSY, absl::StrCat(path, ": its backing file (", loop.backing_path,
                                          ") is in use by another elidefs; unmount that one first"));
  }
  return absl::OkStatus();
}

absl::Status ReadBlockCapabilities(int fd, dev_t device, const std::string& path, DeviceCapabilities* caps) {
  int logical = 0;
  if (ioctl(fd, BLKGETSIZE64, &caps->size_bytes) != 0 || ioctl(fd, BLKSSZGET, &logical) != 0) {
    return ErrnoError(errno, absl::StrCat(path, ": cannot read the size of the device: ", strerror(errno)));
  }
  caps->logical_block_bytes = static_cast<uint32_t>(std::max(logical, 512));
  caps->memory_alignment_bytes = caps->logical_block_bytes;
  const uint64_t max_bytes = QueueLimit(device, "max_sectors_kb", kMaxTransferBytes >> 10U) << 10U;
  caps->max_transfer_bytes = static_cast<uint32_t>(
      std::clamp<uint64_t>(max_bytes, std::max(caps->logical_block_bytes, 4096U), kMaxTransferBytes));
  caps->volatile_write_cache = HasVolatileCache(device);
  caps->native_fua = caps->volatile_write_cache && QueueLimit(device, "fua", 0) == 1;
  // Both are served by punching a hole, which a block device does by write-zeroes with unmapping and without a fallback
  // to writing; it runs on the ring, unlike the blocking BLKDISCARD.
  caps->write_zeroes = QueueLimit(device, "write_zeroes_max_bytes", 0) > 0;
  caps->discard = caps->write_zeroes && QueueLimit(device, "discard_max_bytes", 0) > 0;
  int read_only = 0;
  if (ioctl(fd, BLKROGET, &read_only) == 0 && read_only != 0) caps->read_only = true;
  return absl::OkStatus();
}

absl::Status ReadFileCapabilities(int fd, const struct stat& attributes, const std::string& path,
                                  DeviceCapabilities* caps) {
  uint32_t offset_alignment = 512;
  uint32_t memory_alignment = 512;
#ifdef STATX_DIOALIGN
  struct statx extended {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 && (extended.stx_mask & STATX_DIOALIGN) != 0) {
    if (extended.stx_dio_offset_align == 0) return OpenError(EINVAL, path, false);
    offset_alignment = std::max(offset_alignment, extended.stx_dio_offset_align);
    memory_alignment = std::max(memory_alignment, extended.stx_dio_mem_align);
  }
#endif
  caps->logical_block_bytes = offset_alignment;
  caps->memory_alignment_bytes = memory_alignment;
  caps->size_bytes = static_cast<uint64_t>(attributes.st_size);
  caps->max_transfer_bytes = kMaxTransferBytes;
  caps->volatile_write_cache = true;  // behind the file are the host's filesystem and its disk's cache
  caps->native_fua = false;
  // Beyond the end and with KEEP_SIZE this changes nothing and tells whether holes can be punched.
  const bool punch = !caps->read_only && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, attributes.st_size,
                                                   caps->logical_block_bytes) == 0;
  caps->discard = punch;
  caps->write_zeroes = punch;
  return absl::OkStatus();
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

bool HasVolatileCache(dev_t device) {
  const auto cache = ReadLine(absl::StrCat(DiskFolder(device), "/queue/write_cache"));
  return !cache.has_value() || !absl::StartsWith(*cache, "write through");
}

bool LivesOnElidefs(dev_t device) {
  return LivesOnElidefsAt(device, 0);
}

absl::StatusOr<FileSource> OpenFileSource(const std::string& path, const FileDeviceOptions& options) {
  struct stat before {};
  if (stat(path.c_str(), &before) != 0) return OpenError(errno, path, false);
  FileSource source;
  const bool is_block_device = S_ISBLK(before.st_mode);
  if (is_block_device) source.block_device = before.st_rdev;
  if (!is_block_device && !S_ISREG(before.st_mode)) {
    return ErrnoError(EINVAL, absl::StrCat(path, ": neither a file nor a block device"));
  }
  // Before the open: opening a file on an elidefs mount would already ask that daemon.
  if (options.refuse_on_elidefs && LivesOnElidefs(is_block_device ? before.st_rdev : before.st_dev)) {
    return ErrnoError(ELOOP, absl::StrCat(path,
                                          ": lives on an elidefs mount; a volume inside a volume can deadlock, "
                                          "use an image outside of it"));
  }
  int flags = (options.read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC;
  // On a block device O_EXCL claims it against the kernel's mounts and other claimants.
  if (is_block_device && options.exclusive) flags |= O_EXCL;
  source.fd = OwnedFd(open(path.c_str(), flags));
  if (source.fd.get() < 0) return OpenError(errno, path, is_block_device);
  struct stat attributes {};
  if (fstat(source.fd.get(), &attributes) != 0) return OpenError(errno, path, is_block_device);
  if (attributes.st_dev != before.st_dev || attributes.st_ino != before.st_ino) {
    return ErrnoError(EBUSY, absl::StrCat(path, ": it was replaced while it was opened; try again"));
  }
  if (options.exclusive) {
    ELIDEFS_RETURN_IF_ERROR(Lock(source.fd.get(), path, options, is_block_device));
    if (!is_block_device && !options.read_only) ELIDEFS_RETURN_IF_ERROR(RefuseBelowLoopDevice(attributes, path));
    if (is_block_device && !options.read_only) {
      if (const std::optional<LoopDevice> loop = ReadLoopDevice(DiskName(attributes.st_rdev)); loop.has_value()) {
        ELIDEFS_RETURN_IF_ERROR(ClaimBackingFile(*loop, path, &source.backing_lock));
      }
    }
  }
  source.capabilities.read_only = options.read_only;
  ELIDEFS_RETURN_IF_ERROR(is_block_device
                              ? ReadBlockCapabilities(source.fd.get(), attributes.st_rdev, path, &source.capabilities)
                              : ReadFileCapabilities(source.fd.get(), attributes, path, &source.capabilities));
  DeviceCapabilities& caps = source.capabilities;
  if (caps.read_only && !options.read_only) return OpenError(EROFS, path, is_block_device);
  if (caps.read_only) caps.discard = caps.write_zeroes = false;
  caps.size_bytes -= caps.size_bytes % caps.logical_block_bytes;
  caps.max_transfer_bytes -= caps.max_transfer_bytes % caps.logical_block_bytes;
  return source;
}

}  // namespace elidefs::blockio
