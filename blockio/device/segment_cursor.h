// SegmentCursor: goes once through the memory of a request and hands it out in pieces, for devices that pass parts of a
// request on. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "elidefs/block_device.h"

namespace elidefs::blockio {

class SegmentCursor {
 public:
  // Borrows the request.
  explicit SegmentCursor(const DeviceRequest& request) : request_(request) {}

  // Appends the next `length_bytes` to `pieces`; nothing where a request has no memory (discard, write zeroes).
  void Take(uint64_t length_bytes, std::vector<iovec>* pieces) {
    while (length_bytes > 0 && segment_ < request_.segment_count) {
      const iovec& whole = request_.segments[segment_];
      const uint64_t piece = std::min<uint64_t>(length_bytes, whole.iov_len - within_bytes_);
      pieces->push_back({static_cast<uint8_t*>(whole.iov_base) + within_bytes_, piece});
      length_bytes -= piece;
      within_bytes_ += piece;
      if (within_bytes_ == whole.iov_len) {
        ++segment_;
        within_bytes_ = 0;
      }
    }
  }

 private:
  const DeviceRequest& request_;
  uint32_t segment_ = 0;
  uint64_t within_bytes_ = 0;  // of the segment
};

}  // namespace elidefs::blockio
