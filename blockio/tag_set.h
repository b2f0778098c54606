// TagSet: the requests of one hardware queue, allocated once and named by small numbers (blk-mq's tags). A request in
// flight holds a tag; when all are taken, bios wait in their hardware queue.
//
// Threads: not thread-safe; guarded by the hardware queue's mutex.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "blockio/bio.h"

namespace elidefs::blockio {

class HardwareQueue;

// One child of a bio on its way through the device. Derives from DeviceRequest so that a completion leads back here.
struct Request : DeviceRequest {
  HardwareQueue* queue = nullptr;
  Bio* bio = nullptr;
  uint32_t tag = 0;
  Request* next = nullptr;
  std::vector<iovec> own_segments;  // for a child that starts or ends inside a segment; keeps its capacity
};

class TagSet {
 public:
  // Null when there is no memory for that many. Costs nothing for tags that are never used: a request is made when its
  // tag is first taken, and until then its page is not touched.
  static std::unique_ptr<TagSet> Create(HardwareQueue* queue, uint32_t depth);
  ~TagSet();
  TagSet(const TagSet&) = delete;
  TagSet& operator=(const TagSet&) = delete;

  // The free request with the lowest tag, or null.
  Request* Acquire();
  void Release(Request* request);

  uint32_t depth() const { return depth_; }
  uint32_t in_use() const { return in_use_; }

 private:
  struct FreeDeleter {
    void operator()(Request* memory) const { std::free(memory); }
  };
  TagSet(HardwareQueue* queue, uint32_t depth, Request* memory);

  HardwareQueue* const queue_;
  const uint32_t depth_;
  uint32_t in_use_ = 0;
  uint32_t made_ = 0;           // requests below this tag exist; the lowest free tag is at most this
  std::vector<uint64_t> free_;  // one bit per tag, set while free
  std::unique_ptr<Request, FreeDeleter> requests_;  // depth_ of them
};

}  // namespace elidefs::blockio
