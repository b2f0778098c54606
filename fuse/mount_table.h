// The kernel's list of mounts, as far as the daemon and its tools need it (proc(5), /proc/PID/mountinfo).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace elidefs::fuse {

struct MountEntry {
  dev_t device = 0;        // st_dev of everything on the mount
  std::string mountpoint;  // absolute
  std::string type;        // fuse.elidefs for ours
  std::string source;
  uid_t owner = 0;  // user_id= of a FUSE mount
  bool IsElidefs() const { return type == "fuse.elidefs"; }
};

// Lines that do not parse are left out. Octal escapes are decoded.
std::vector<MountEntry> ParseMountTable(std::string_view text);
absl::StatusOr<std::vector<MountEntry>> ReadMountTable();

// Where else the elidefs volume of an entry that was unmounted is still mounted, for a message: another mount point, or
// one in the mount namespace of some other process, as far as /proc shows that. Empty: nowhere.
std::string MountedElsewhere(const MountEntry& unmounted);

// The topmost mount on exactly `mountpoint`, nullptr if there is none.
const MountEntry* FindMount(const std::vector<MountEntry>& table, std::string_view mountpoint);

// `path` as the mount table names it, without asking the file system mounted there (it may be dead or stuck): symbolic
// links are resolved up to the last component, the last one only if the name without that is no mount point.
absl::StatusOr<std::string> ResolveMountPoint(const std::string& path);

// The elidefs mount on `path`; the error says what is there instead.
absl::StatusOr<MountEntry> FindElidefsMount(const std::string& path);

}  // namespace elidefs::fuse
