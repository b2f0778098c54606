#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace elidefs {
namespace {

template <typename T>
constexpr std::array<T, 256> MakeTable(T reflected_polynomial) {
  std::array<T, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    T value = static_cast<T>(i);
    for (int bit = 0; bit < 8; ++bit) {
      value = static_cast<T>((value & 1U) != 0 ? (value >> 1U) ^ reflected_polynomial : value >> 1U);
    }
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrc32cTable = MakeTable<uint32_t>(0x82F63B78U);
constexpr std::array<uint16_t, 256> kCrc16Table = MakeTable<uint16_t>(0xA001U);

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(uint32_t seed, const void* data, size_t size_bytes) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint64_t crc = seed;
  for (; size_bytes >= 8; size_bytes -= 8, bytes += 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto crc32 = static_cast<uint32_t>(crc);
  for (; size_bytes > 0; --size_bytes, ++bytes) crc32 = _mm_crc32_u8(crc32, *bytes);
  return crc32;
}
#endif

}  // namespace

uint32_t Crc32cPortable(uint32_t seed, const void* data, size_t size_bytes) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint32_t crc = seed;
  for (size_t i = 0; i < size_bytes; ++i) crc = kCrc32cTable[(crc ^ bytes[i]) & 0xFFU] ^ (crc >> 8U);
  return crc;
}

uint32_t Crc32c(uint32_t seed, const void* data, size_t size_bytes) {
#if defined(__x86_64__)
  static const bool kHardware = __builtin_cpu_supports("sse4.2") != 0;
  if (kHardware) return Crc32cSse42(seed, data, size_bytes);
#endif
  return Crc32cPortable(seed, data, size_bytes);
}

uint16_t Crc16(uint16_t seed, const void* data, size_t size_bytes) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint16_t crc = seed;
  for (size_t i = 0; i < size_bytes; ++i) {
    crc = static_cast<uint16_t>(kCrc16Table[(crc ^ bytes[i]) & 0xFFU] ^ (crc >> 8U));
  }
  return crc;
}

}  // namespace elidefs
