// Loop devices and what lies behind them: two devices over one file are one device to whoever writes them.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace elidefs::blockio {

struct LoopDevice {
  std::string name;          // /dev/loopN
  std::string backing_path;  // as it was attached; the name may be gone or mean something else by now
  dev_t filesystem = 0;      // st_dev of the backing file
  ino_t inode = 0;
  uint64_t offset_bytes = 0;
  uint64_t end_bytes = UINT64_MAX;

  bool IsOver(const struct stat& file) const { return file.st_dev == filesystem && file.st_ino == inode; }
  bool Overlaps(const LoopDevice& other) const {
    return filesystem == other.filesystem && inode == other.inode && offset_bytes < other.end_bytes &&
           other.offset_bytes < end_bytes;
  }
};

// `disk`: the name below /sys/block. The kernel is asked for the file itself, which a renamed or removed name does not
// deceive; where the device cannot be opened the name has to do. Nothing if it is no loop device or has no file.
std::optional<LoopDevice> ReadLoopDevice(const std::string& disk);

// All that have a file.
std::vector<LoopDevice> ListLoopDevices();

}  // namespace elidefs::blockio
