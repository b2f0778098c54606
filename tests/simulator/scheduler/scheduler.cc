#include "tests/simulator/scheduler/scheduler.h"

#ifdef ELIDEFS_SANITIZED

namespace elidefs::simulator {

void RunSimulated(const SchedulerOptions& /*options*/, const std::function<void()>& body) {
  body();
}

bool IsDeterministic() {
  return false;
}

}  // namespace elidefs::simulator

#else

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "tests/simulator/scheduler/scheduler_impl.h"

namespace elidefs::simulator {
namespace {

constexpr size_t kStackBytes = 512U << 10U;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kMostSpareStacks = 32;
// Idle threads of the real code wait an hour and look again. A wake-up that only comes from such a timeout was lost.
constexpr std::chrono::minutes kLongestWait(10);
constexpr std::chrono::microseconds kSwitchTime(1);
// So many deadlines in a row in which `body` did not run: only threads that look again and again are left.
constexpr uint32_t kMostIdleJumps = 20000;
// Virtual time begins in 2024, since the time of day is derived from it.
constexpr std::chrono::seconds kStartOfTime(1717200000);

thread_local Scheduler* current_scheduler = nullptr;

struct StackPool {
  std::vector<void*> spare;
  ~StackPool() {
    for (void* stack : spare) munmap(stack, kStackBytes);
  }
};
thread_local StackPool stack_pool;

void* TakeStack() {
  if (!stack_pool.spare.empty()) {
    void* const stack = stack_pool.spare.back();
    stack_pool.spare.pop_back();
    return stack;
  }
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) throw std::runtime_error("no stack");
  return stack;
}

}  // namespace

Fiber::Fiber(std::string fiber_name) : name(std::move(fiber_name)), stack(TakeStack()) {}

Fiber::~Fiber() {
  if (stack_pool.spare.size() < kMostSpareStacks) {
    stack_pool.spare.push_back(stack);
  } else {
    munmap(stack, kStackBytes);
  }
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), random_(options.seed), now_(kStartOfTime), outer_(current_scheduler) {
  if (outer_ != nullptr) throw std::logic_error("a simulation inside a simulation");
  current_scheduler = this;
}

Scheduler::~Scheduler() {
  current_scheduler = outer_;
}

Scheduler* Scheduler::Current() {
  return current_scheduler;
}

void Scheduler::Run(const std::function<void()>& body) {
  Start("main", body);
  while (Fiber* next = PickNext()) Resume(next);
}

std::shared_ptr<Fiber> Scheduler::Start(std::string name, absl::AnyInvocable<void()> body) {
  auto fiber = std::make_shared<Fiber>(std::move(name));
  fiber->body = std::move(body);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = static_cast<char*>(fiber->stack) + kGuardBytes;
  fiber->context.uc_stack.ss_size = kStackBytes - kGuardBytes;
  fiber->context.uc_link = &outside_;
  makecontext(&fiber->context, &Scheduler::Entry, 0);
  fibers_.push_back(fiber);
  if (running_ != nullptr) MayPreempt();
  return fiber;
}

void Scheduler::Entry() {
  Scheduler* const scheduler = current_scheduler;
  Fiber* const self = scheduler->running_;
  self->body();
  self->body = nullptr;  // what it captured ends on its own stack
  self->state = Fiber::State::kEnded;
  scheduler->WakeAll(self);
}

void Scheduler::Join(const std::shared_ptr<Fiber>& fiber) {
  while (fiber->state != Fiber::State::kEnded) Wait(fiber.get(), "join", std::nullopt);
}

bool Scheduler::Wait(const void* object, const char* how, std::optional<std::chrono::nanoseconds> timeout) {
  Fiber* const self = running_;
  self->state = Fiber::State::kWaiting;
  self->waits_for = object;
  self->waits_how = how;
  self->timed_out = false;
  self->deadline.reset();
  if (timeout.has_value()) self->deadline = now_ + std::max(*timeout, std::chrono::nanoseconds(0));
  SwitchFromRunning();
  return !self->timed_out;
}

void Scheduler::WakeAll(const void* object) {
  for (const auto& fiber : fibers_) {
    if (fiber->state == Fiber::State::kWaiting && fiber->waits_for == object) fiber->state = Fiber::State::kRunnable;
  }
}

void Scheduler::WakeOne(const void* object) {
  Fiber* chosen = nullptr;
  uint64_t seen = 0;
  for (const auto& fiber : fibers_) {
    if (fiber->state != Fiber::State::kWaiting || fiber->waits_for != object) continue;
    ++seen;
    if (seen == 1 || random_() % seen == 0) chosen = fiber.get();
  }
  if (chosen != nullptr) chosen->state = Fiber::State::kRunnable;
}

void Scheduler::MayPreempt() {
  if (options_.preempt_one_in == 0 || random_() % options_.preempt_one_in != 0) return;
  SwitchFromRunning();
}

void Scheduler::SwitchFromRunning() {
  Fiber* const self = running_;
  now_ += kSwitchTime;
  swapcontext(&self->context, &outside_);
}

void Scheduler::Resume(Fiber* fiber) {
  running_ = fiber;
  if (fiber == fibers_.front().get()) idle_jumps_ = 0;
  swapcontext(&outside_, &fiber->context);
  running_ = nullptr;
  if (fiber->state != Fiber::State::kEnded) return;
  std::erase_if(fibers_, [fiber](const std::shared_ptr<Fiber>& other) { return other.get() == fiber; });
}

Fiber* Scheduler::PickNext() {
  while (!fibers_.empty()) {
    Fiber* chosen = nullptr;
    uint64_t seen = 0;
    for (const auto& fiber : fibers_) {
      if (fiber->state != Fiber::State::kRunnable) continue;
      ++seen;
      if (seen == 1 || random_() % seen == 0) chosen = fiber.get();
    }
    if (chosen != nullptr) return chosen;
    if (!JumpToNextDeadline()) ReportDeadlock();
  }
  return nullptr;
}

bool Scheduler::JumpToNextDeadline() {
  std::optional<SteadyClock::time_point> next;
  for (const auto& fiber : fibers_) {
    if (fiber->deadline.has_value() && (!next.has_value() || *fiber->deadline < *next)) next = fiber->deadline;
  }
  if (!next.has_value() || *next - now_ > kLongestWait || ++idle_jumps_ > kMostIdleJumps) return false;
  now_ = std::max(now_, *next);
  for (const auto& fiber : fibers_) {
    if (fiber->state != Fiber::State::kWaiting || !fiber->deadline.has_value() || *fiber->deadline > now_) continue;
    fiber->timed_out = true;
    fiber->state = Fiber::State::kRunnable;
  }
  return true;
}

void Scheduler::ReportDeadlock() const {
  std::fprintf(stderr, "simulation (seed %llu): every thread waits:\n", static_cast<unsigned long long>(options_.seed));
  for (const auto& fiber : fibers_) {
    std::fprintf(stderr, "  %s: %s %p\n", fiber->name.c_str(), fiber->waits_how, fiber->waits_for);
  }
  std::abort();
}

void RunSimulated(const SchedulerOptions& options, const std::function<void()>& body) {
  Scheduler(options).Run(body);
}

bool IsDeterministic() {
  return true;
}

}  // namespace elidefs::simulator

#endif
