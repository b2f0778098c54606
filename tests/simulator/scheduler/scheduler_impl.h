// The scheduler's inside: fibers, what they wait for, and the choice of the next one. See scheduler.h.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {

// A stack and what runs on it. Stacks are kept for the next fiber: a mount starts several.
struct Fiber {
  enum class State : uint8_t { kRunnable, kWaiting, kEnded };

  explicit Fiber(std::string fiber_name);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  const std::string name;
  State state = State::kRunnable;
  const void* waits_for = nullptr;  // a mutex, a condition variable, a fiber
  const char* waits_how = "";
  std::optional<SteadyClock::time_point> deadline;
  bool timed_out = false;
  void* slot = nullptr;  // Thread::Slot
  absl::AnyInvocable<void()> body;
  void* stack = nullptr;
  ucontext_t context = {};
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // That of the calling system thread while it is inside RunSimulated.
  static Scheduler* Current();

  void Run(const std::function<void()>& body);
  std::shared_ptr<Fiber> Start(std::string name, absl::AnyInvocable<void()> body);
  void Join(const std::shared_ptr<Fiber>& fiber);

  // Leaves the running fiber until Wake names what it waits for, or until `timeout`; false if that came first.
  bool Wait(const void* object, const char* how, std::optional<std::chrono::nanoseconds> timeout);
  void WakeAll(const void* object);
  void WakeOne(const void* object);
  // A point at which another thread may go first.
  void MayPreempt();
  SteadyClock::time_point now() const { return now_; }
  uint32_t DrawCpu() { return static_cast<uint32_t>(random_() % 4); }
  void*& slot() { return running_->slot; }

 private:
  void SwitchFromRunning();
  void Resume(Fiber* fiber);
  Fiber* PickNext();
  bool JumpToNextDeadline();
  [[noreturn]] void ReportDeadlock() const;
  static void Entry();

  const SchedulerOptions options_;
  std::mt19937_64 random_;
  SteadyClock::time_point now_;
  std::vector<std::shared_ptr<Fiber>> fibers_;  // those that have not ended; the first is `body`'s
  Fiber* running_ = nullptr;
  uint32_t idle_jumps_ = 0;  // deadlines passed since the first fiber ran
  ucontext_t outside_ = {};
  Scheduler* const outer_;
};

}  // namespace elidefs::simulator
