// Flush tickets (rule E1) and needs (rule E2).
#pragma once

#include <cstdint>

namespace elidefs::blockio {

// Number of a dispatched flush on one leaf device, counted from 1. 64 bits: no wrap (D4).
using Ticket = uint64_t;

// A need is the smallest ticket whose flush covers a completed write; 0 means "nothing to flush".
inline constexpr Ticket kNoNeed = 0;

}  // namespace elidefs::blockio
