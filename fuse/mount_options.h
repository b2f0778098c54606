// The options of `elidefs mount -o ...`: parsing, and what each becomes for the volume and for the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "elidefs/options.h"

namespace elidefs::fuse {

struct MountOptions {
  bool read_only = false;
  bool writeback_cache = false;  // rule D7: write-through is the default
  bool allow_other = false;      // the command line sets it for root
  bool update_atime = true;
  bool debug = false;
  ErrorPolicy errors = ErrorPolicy::kRemountReadOnly;
  uint32_t commit_seconds = 30;
  uint32_t max_threads = 4;
  uint32_t queues = 0;  // 0: the volume decides
  uint32_t write_behind_mib = 32;
  std::vector<std::string> kernel_flags;  // suid, nodev, ...: handed to mount(2) as they are
};

// Applies a comma-separated list to `options`; later options win. Errors are InvalidArgument and name the option.
// Options that only mount(8) and systemd read (nofail, _netdev, x-...) are accepted and ignored.
absl::Status ApplyMountOptions(std::string_view list, MountOptions* options);

// Without the log function.
VolumeOptions MakeVolumeOptions(const MountOptions& options);

// The value of libfuse's -o. `source` is shown as the mount's device; commas and backslashes in it are escaped.
std::string MakeFuseOptions(const MountOptions& options, std::string_view source);

}  // namespace elidefs::fuse
