// A bio with its own aligned buffer that notes its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "blockio/bio.h"

namespace elidefs::blockio {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<uint8_t, FreeMemory>;

inline AlignedBuffer MakeBuffer(size_t size_bytes, int fill = 0) {
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096));
  std::memset(memory, fill, size_bytes);
  return AlignedBuffer(memory);
}

struct TestBio {
  Bio bio;
  AlignedBuffer buffer;
  std::vector<iovec> segments;
  std::atomic<int> ended{0};
  std::function<void(TestBio*)> on_end;

  TestBio(Operation operation, uint64_t offset_bytes, uint64_t length_bytes, uint32_t flags = 0, int fill = 0x5A) {
    bio.operation = operation;
    bio.flags = flags;
    bio.offset_bytes = offset_bytes;
    bio.length_bytes = length_bytes;
    bio.context = this;
    bio.end_io = [](Bio* done) {
      auto* self = static_cast<TestBio*>(done->context);
      if (self->on_end) self->on_end(self);
      self->ended.fetch_add(1);
    };
    if (operation == Operation::kRead || operation == Operation::kWrite) {
      buffer = MakeBuffer(length_bytes, fill);
      segments.push_back(iovec{buffer.get(), length_bytes});
      UseSegments();
    }
  }
  void UseSegments() {
    bio.segments = segments.data();
    bio.segment_count = static_cast<uint32_t>(segments.size());
  }
};

}  // namespace elidefs::blockio
