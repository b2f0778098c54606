// Superblock and feature checks at mount: the gate before any other byte of a volume is believed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/geometry.h"

namespace elidefs::core {

// Reads, checks and decodes the superblock into a Geometry. Refuses (message names the feature and the remedy, volume
// untouched): not ext4 (EINVAL), bad checksum or impossible values (EUCLEAN), a device smaller than the volume
// (EINVAL), refused features of DESIGN (EOPNOTSUPP). With `read_write` also the features that are refused read-write,
// an external journal, no journal, and a volume marked with errors.
absl::StatusOr<Geometry> ValidateSuperBlock(const SuperBlock& super_block, uint64_t device_bytes,
                                            uint32_t logical_block_bytes, bool read_write);

}  // namespace elidefs::core
