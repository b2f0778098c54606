// Seams for the tests: a volume with planted bugs and small caches. Not installed, not reachable from the public
// options.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "blockio/flush_ledger.h"
#include "core/planted_bugs.h"
#include "elidefs/volume.h"

namespace elidefs::core {

struct VolumeInternals {
  PlantedBugs planted;
  blockio::LedgerPlantedBugs ledger;
  size_t inode_cache_limit = 16384;
};

absl::StatusOr<std::unique_ptr<Volume>> OpenVolumeWithInternals(std::unique_ptr<BlockDevice> device,
                                                                const VolumeOptions& options,
                                                                const VolumeInternals& internals);

}  // namespace elidefs::core
