// Fixed-endian integers for on-disk structs: same size and alignment 1, converted on access.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace elidefs {

template <typename T>
constexpr T ByteSwap(T value) {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    return __builtin_bswap64(value);
  }
}

template <typename T, std::endian kOrder>
class FixedEndian {
 public:
  FixedEndian() = default;
  FixedEndian(T value) { Set(value); }  // NOLINT(google-explicit-constructor): fields are assigned like integers
  FixedEndian& operator=(T value) {
    Set(value);
    return *this;
  }
  operator T() const { return Get(); }  // NOLINT(google-explicit-constructor)
  T Get() const {
    T raw;
    std::memcpy(&raw, bytes_, sizeof(T));
    return kOrder == std::endian::native ? raw : ByteSwap(raw);
  }
  void Set(T value) {
    const T raw = kOrder == std::endian::native ? value : ByteSwap(value);
    std::memcpy(bytes_, &raw, sizeof(T));
  }

 private:
  uint8_t bytes_[sizeof(T)];
};

using Le16 = FixedEndian<uint16_t, std::endian::little>;
using Le32 = FixedEndian<uint32_t, std::endian::little>;
using Le64 = FixedEndian<uint64_t, std::endian::little>;
using Be16 = FixedEndian<uint16_t, std::endian::big>;
using Be32 = FixedEndian<uint32_t, std::endian::big>;
using Be64 = FixedEndian<uint64_t, std::endian::big>;

static_assert(sizeof(Le16) == 2 && alignof(Le16) == 1 && sizeof(Le64) == 8);
static_assert(std::is_trivially_copyable_v<Be32> && std::is_trivially_default_constructible_v<Be32>);

}  // namespace elidefs
