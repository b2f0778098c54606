#include "blockio/device/loop_devices.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "blockio/device/sysfs.h"

namespace elidefs::blockio {

std::optional<LoopDevice> ReadLoopDevice(const std::string& disk) {
  const std::optional<std::string> path = ReadLine(absl::StrCat("/sys/block/", disk, "/loop/backing_file"));
  if (!path.has_value()) return std::nullopt;
  LoopDevice loop;
  loop.name = absl::StrCat("/dev/", disk);
  loop.backing_path = *path;
  const int fd = open(loop.name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  loop_info64 info = {};
  const bool known = fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0;
  if (fd >= 0) close(fd);
  if (known) {
    loop.filesystem = info.lo_device;
    loop.inode = info.lo_inode;
    loop.offset_bytes = info.lo_offset;
    if (info.lo_sizelimit != 0) loop.end_bytes = info.lo_offset + info.lo_sizelimit;
    return loop;
  }
  struct stat attributes {};
  if (stat(path->c_str(), &attributes) != 0) return std::nullopt;
  loop.filesystem = attributes.st_dev;
  loop.inode = attributes.st_ino;
  return loop;
}

std::vector<LoopDevice> ListLoopDevices() {
  std::vector<LoopDevice> loops;
  for (const std::string& disk : ListDirectory("/sys/block")) {
    if (!absl::StartsWith(disk, "loop")) continue;
    if (std::optional<LoopDevice> loop = ReadLoopDevice(disk); loop.has_value()) loops.push_back(*std::move(loop));
  }
  return loops;
}

}  // namespace elidefs::blockio
