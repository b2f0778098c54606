#include "base/asymmetric_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace elidefs {
namespace {

bool Membarrier(int command) {
  return syscall(__NR_membarrier, command, 0U, 0) == 0;
}

}  // namespace

bool HasHeavyBarrier() {
  static const bool registered = Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return registered;
}

void HeavyBarrier() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A forked child may have to register for itself. Other failures there are none; what relied on it would be unsound.
  if (errno != EPERM || !Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ||
      !Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    std::abort();
  }
}

}  // namespace elidefs
