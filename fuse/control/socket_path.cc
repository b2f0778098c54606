#include "fuse/control/socket_path.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

absl::StatusOr<std::string> RuntimeFolder(uid_t owner) {
  if (owner == 0) return std::string("/run/elidefs");
  if (owner != geteuid()) return absl::StrCat("/run/user/", owner, "/elidefs");
  const char* folder = getenv("XDG_RUNTIME_DIR");
  if (folder == nullptr || folder[0] != '/') return ErrnoError(ENOENT, "XDG_RUNTIME_DIR is not set");
  return absl::StrCat(folder, "/elidefs");
}

absl::StatusOr<std::string> SocketPath(uid_t owner, dev_t device) {
  ELIDEFS_ASSIGN_OR_RETURN(const std::string folder, RuntimeFolder(owner));
  return absl::StrFormat("%s/%x-%x.sock", folder, major(device), minor(device));
}

}  // namespace

absl::StatusOr<std::string> OwnSocketPath(dev_t device) {
  return SocketPath(geteuid(), device);
}

absl::StatusOr<std::string> SocketPathOf(const MountEntry& mount) {
  return SocketPath(mount.owner, mount.device);
}

}  // namespace elidefs::fuse
