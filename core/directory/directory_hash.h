// Hashes of names in indexed directories: legacy, half MD4 and TEA, each over signed or unsigned characters. Pure.
// Half MD4 is MD4 (RFC 1320) with one pass of eight steps per round over eight words; TEA is the Tiny Encryption
// Algorithm of Wheeler and Needham with 16 cycles, used as a Davies-Meyer compression function. The packing of names
// into words is ext4's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace elidefs::core {

enum DirectoryHashVersion : uint8_t {
  kHashLegacy = 0,
  kHashHalfMd4 = 1,
  kHashTea = 2,
  kHashLegacyUnsigned = 3,
  kHashHalfMd4Unsigned = 4,
  kHashTeaUnsigned = 5,
};

// `seed` is s_hash_seed; all zero selects MD4's initial state. The lowest bit is always clear: an index uses it to say
// that a run of equal hashes continues from the block before. Empty for versions we do not know.
std::optional<uint32_t> DirectoryHash(std::string_view name, uint8_t version, const uint32_t seed[4]);

}  // namespace elidefs::core
