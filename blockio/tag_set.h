// TagSet: the requests of one hardware queue, allocated once and named by small numbers (blk-mq's tags). A request in
// flight holds a tag; when all are taken, bios wait in their hardware queue.
//
// Threads: not thread-safe; guarded by the hardware queue's mutex.
#pragma once

#include <sys/uio.h>

#include <cstdint>
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
  TagSet(HardwareQueue* queue, uint32_t depth);

  // The free request with the lowest tag, or null.
  Request* Acquire();
  void Release(Request* request);

  uint32_t depth() const { return depth_; }
  uint32_t in_use() const { return in_use_; }

 private:
  const uint32_t depth_;
  uint32_t in_use_ = 0;
  std::vector<uint64_t> free_;  // one bit per tag, set while free
  std::unique_ptr<Request[]> requests_;
};

}  // namespace elidefs::blockio
