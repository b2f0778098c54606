#include "blockio/tag_set.h"

#include <bit>

namespace elidefs::blockio {

TagSet::TagSet(HardwareQueue* queue, uint32_t depth)
    : depth_(depth), free_((depth + 63) / 64, 0), requests_(std::make_unique<Request[]>(depth)) {
  for (uint32_t tag = 0; tag < depth; ++tag) {
    requests_[tag].queue = queue;
    requests_[tag].tag = tag;
    free_[tag / 64] |= 1ULL << (tag % 64);
  }
}

Request* TagSet::Acquire() {
  for (size_t word = 0; word < free_.size(); ++word) {
    if (free_[word] == 0) continue;
    const auto bit = static_cast<uint32_t>(std::countr_zero(free_[word]));
    free_[word] &= free_[word] - 1;
    ++in_use_;
    return &requests_[word * 64 + bit];
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
