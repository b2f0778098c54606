#include "blockio/tag_set.h"

#include <bit>
#include <new>

namespace elidefs::blockio {

std::unique_ptr<TagSet> TagSet::Create(HardwareQueue* queue, uint32_t depth) {
  static_assert(alignof(Request) <= alignof(std::max_align_t));
  auto* memory = static_cast<Request*>(std::malloc(depth * sizeof(Request)));
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<TagSet>(new TagSet(queue, depth, memory));
}

TagSet::TagSet(HardwareQueue* queue, uint32_t depth, Request* memory)
    : queue_(queue), depth_(depth), free_((depth + 63) / 64, ~0ULL), requests_(memory) {
  if (depth % 64 != 0) free_.back() = (1ULL << (depth % 64)) - 1;
}

TagSet::~TagSet() {
  std::destroy_n(requests_.get(), made_);
}

Request* TagSet::Acquire() {
  for (size_t word = 0; word < free_.size(); ++word) {
    if (free_[word] == 0) continue;
    const auto tag = static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(free_[word]));
    free_[word] &= free_[word] - 1;
    ++in_use_;
    Request* request = requests_.get() + tag;
    if (tag == made_) {
      new (request) Request;
      request->queue = queue_;
      request->tag = tag;
      ++made_;
    }
    return request;
  }
  return nullptr;
}

void TagSet::Release(Request* request) {
  request->bio = nullptr;
  request->next = nullptr;
  free_[request->tag / 64] |= 1ULL << (request->tag % 64);
  --in_use_;
}

}  // namespace elidefs::blockio
