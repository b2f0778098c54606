#include "core/data/buffer_pool.h"

#include <bit>
#include <cstdlib>

namespace elidefs::core {
namespace {

size_t ClassOf(size_t capacity_bytes) {
  return static_cast<size_t>(std::countr_zero(capacity_bytes / BufferPool::kAlignmentBytes));
}

}  // namespace

BufferPool::Bytes BufferPool::Allocate(size_t size_bytes) {
  const size_t capacity = std::bit_ceil(size_bytes < kAlignmentBytes ? kAlignmentBytes : size_bytes);
  const size_t index = ClassOf(capacity);
  if (index < kClasses) {
    Class& size_class = classes_[index];
    MutexLock lock(size_class.mutex);
    if (!size_class.free.empty()) {
      uint8_t* bytes = size_class.free.back();
      size_class.free.pop_back();
      return Bytes(bytes, Return{this, capacity});
    }
  }
  return Bytes(static_cast<uint8_t*>(std::aligned_alloc(kAlignmentBytes, capacity)), Return{this, capacity});
}

void BufferPool::Return::operator()(uint8_t* bytes) const {
  const size_t index = ClassOf(capacity_bytes);
  if (index < kClasses) {
    Class& size_class = pool->classes_[index];
    MutexLock lock(size_class.mutex);
    if ((size_class.free.size() + 1) * capacity_bytes <= kMaxCachedBytesPerClass) {
      size_class.free.push_back(bytes);
      return;
    }
  }
  std::free(bytes);
}

BufferPool::~BufferPool() {
  for (Class& size_class : classes_) {
    MutexLock lock(size_class.mutex);
    for (uint8_t* bytes : size_class.free) std::free(bytes);
  }
}

}  // namespace elidefs::core
