// CRC-32C (Castagnoli) as ext4 and jbd2 use it: `Crc32c(seed, data)` continues from `seed` and applies no final
// inversion; a fresh checksum starts from ~0. Source: Documentation/filesystems/ext4, "Checksums".
#pragma once

#include <cstddef>
#include <cstdint>

namespace elidefs {

// Thread-safe, no allocation. Uses the CPU's crc32 instruction where it exists, a table otherwise.
uint32_t Crc32c(uint32_t seed, const void* data, size_t size_bytes);

// The portable implementation, exposed so that a test can compare the two.
uint32_t Crc32cPortable(uint32_t seed, const void* data, size_t size_bytes);

// CRC-16 (polynomial 0x8005, reflected) of group descriptors on volumes with uninit_bg but no metadata_csum.
uint16_t Crc16(uint16_t seed, const void* data, size_t size_bytes);

}  // namespace elidefs
