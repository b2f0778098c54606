// Scheduler: runs threads of the real code one at a time, in an order that a seed decides, in virtual time.
//
// Inside RunSimulated everything that base/mutex.h, base/thread.h and base/clock.h offer is this scheduler's: a Thread
// is a stack of its own on the calling system thread, and control changes hands only where the code locks, unlocks,
// waits, notifies, sleeps or starts a thread. The same seed gives the same interleaving, so a history replays to the
// byte. Time stands still while anything can run and jumps to the next deadline when nothing can; each change of hands
// costs a microsecond. If nothing can run and no deadline is near, threads wait for each other: the process says where
// and aborts.
//
// Programs of the simulator link platform.cc in place of base's own definitions; outside of RunSimulated these behave
// as base does. In sanitizer builds base's are kept, RunSimulated simply calls `body`, and threads are real ones: their
// order then is the kernel's and a seed does not repeat it.
//
// Threads: several system threads may each run a simulation; nothing is shared between them.
#pragma once

#include <cstdint>
#include <functional>

namespace elidefs::simulator {

struct SchedulerOptions {
  uint64_t seed = 1;
  // At a lock, an unlock, a notification and a start the running thread steps aside once in so many times on average.
  // 0: never, threads change only where they must.
  uint32_t preempt_one_in = 0;
};

// Returns when `body` and every thread it started have ended.
void RunSimulated(const SchedulerOptions& options, const std::function<void()>& body);

// False in sanitizer builds.
bool IsDeterministic();

}  // namespace elidefs::simulator
