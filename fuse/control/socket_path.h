// Where the control socket of a mount lives.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "fuse/mount_table.h"

namespace elidefs::fuse {

// The socket of the mount whose files have the device number `device`, for a daemon run by this user: below
// /run/elidefs for root, else below $XDG_RUNTIME_DIR/elidefs. The number is unique among mounts that exist.
absl::StatusOr<std::string> OwnSocketPath(dev_t device);
// The same, seen by a client: root may ask any user's daemon.
absl::StatusOr<std::string> SocketPathOf(const MountEntry& mount);

}  // namespace elidefs::fuse
