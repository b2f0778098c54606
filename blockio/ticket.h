// Flush tickets (rule E1) and needs (rule E2).
#pragma once

#include <atomic>
#include <cstdint>

namespace elidefs::blockio {

// Number of a dispatched flush on one leaf device, counted from 1. 64 bits: no wrap (D4).
using Ticket = uint64_t;

// A need is the smallest ticket whose flush covers a completed write; 0 means "nothing to flush".
inline constexpr Ticket kNoNeed = 0;

// E2's fetch-max: `target` becomes the larger of itself and `ticket`.
inline void RaiseTo(std::atomic<Ticket>& target, Ticket ticket) {
  Ticket seen = target.load(std::memory_order_relaxed);
  while (seen < ticket && !target.compare_exchange_weak(seen, ticket, std::memory_order_acq_rel)) {
  }
}

}  // namespace elidefs::blockio
