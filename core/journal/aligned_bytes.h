// AlignedBytes: shared memory that the device can read and write directly (O_DIRECT).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace elidefs::core {

using AlignedBytes = std::shared_ptr<uint8_t[]>;

// Zeroed. `alignment_bytes` is a power of two.
inline AlignedBytes AllocateAligned(size_t size_bytes, size_t alignment_bytes) {
  const std::align_val_t alignment{alignment_bytes};
  auto* bytes = static_cast<uint8_t*>(::operator new[](size_bytes, alignment));
  std::memset(bytes, 0, size_bytes);
  return AlignedBytes(bytes, [alignment](uint8_t* freed) { ::operator delete[](freed, alignment); });
}

}  // namespace elidefs::core
