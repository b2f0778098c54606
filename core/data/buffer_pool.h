// BufferPool: O_DIRECT-aligned buffers, recycled so that a stream does not fault fresh pages in for every request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace elidefs::core {

class BufferPool {
 public:
  struct Return {
    BufferPool* pool = nullptr;
    size_t capacity_bytes = 0;
    void operator()(uint8_t* bytes) const;
  };
  using Bytes = std::unique_ptr<uint8_t[], Return>;

  static constexpr size_t kAlignmentBytes = 4096;
  static constexpr size_t kMaxCachedBytesPerClass = 16U << 20U;

  ~BufferPool();
  // At least `size_bytes`, content undefined. Null when memory is exhausted. Thread-safe; must not outlive the pool.
  Bytes Allocate(size_t size_bytes);

 private:
  static constexpr size_t kClasses = 10;  // 4 KiB << class; larger sizes are not cached
  struct Class {
    Mutex mutex;
    std::vector<uint8_t*> free ABSL_GUARDED_BY(mutex);
  };
  std::array<Class, kClasses> classes_;
};

}  // namespace elidefs::core
