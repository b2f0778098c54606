// `elidefs mount`: from the command line to a served mount, and the daemon's orderly end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elidefs/volume.h"
#include "fuse/command_line.h"

namespace elidefs::fuse {

// Opens the volume in `source`. Called in the daemon's process, after the fork: threads and rings do not survive one.
using VolumeOpener =
    std::function<absl::StatusOr<std::unique_ptr<Volume>>(const std::string& source, const VolumeOptions& options)>;

// Returns an exit status: in the parent when the mount is usable (0) or failed (1); in the daemon, or with
// command.foreground, after the mount has ended (0: the volume was closed clean). The process has one thread.
int RunMount(const Command& command, const VolumeOpener& open_volume);

}  // namespace elidefs::fuse
