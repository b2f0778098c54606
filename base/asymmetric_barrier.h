// Asymmetric barriers: two threads that each store and then load want a full barrier between the two on either side.
// Where one side runs a million times as often as the other, the rare side can pay for both: HeavyBarrier makes the
// kernel run a barrier on every core that runs a thread of this process, and LightBarrier only keeps the compiler from
// reordering. Source: membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED.
//
// Threads: thread-safe.
#pragma once

#include <atomic>

namespace elidefs {

// False where the kernel or a seccomp filter refuses membarrier; then neither barrier may be used. Constant.
bool HasHeavyBarrier();

inline void LightBarrier() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Microseconds, more on a machine with many cores.
void HeavyBarrier();

}  // namespace elidefs
