// Taking a mount down through the kernel, so that its dirty pages are written first.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace elidefs::fuse {

// Unmounts the topmost mount on `mountpoint` (absolute, resolved); root directly, others with fusermount3. Blocks while
// the kernel writes dirty pages. EBUSY: files are open or it is somebody's working directory.
absl::Status Unmount(const std::string& mountpoint);

// As Unmount, but only if the topmost mount there has this device number: ENOENT otherwise.
absl::Status UnmountDevice(const std::string& mountpoint, dev_t device);

// Detaches a mount whose daemon is dead; nothing is written.
absl::Status DetachDead(const std::string& mountpoint);

}  // namespace elidefs::fuse
