// Which ext4 features a mount accepts. Source: DESIGN's "Refuse" rule, Documentation/filesystems/ext4, "Super Block".
#pragma once

#include "absl/status/status.h"
#include "core/ondisk/super_block.h"

namespace elidefs::core {

// EOPNOTSUPP names every refused feature (with the name that tune2fs uses) and a remedy for each. The read-only check
// accepts whatever only changes how the volume must be written.
absl::Status CheckFeatures(const SuperBlock& super_block, bool read_write);

}  // namespace elidefs::core
