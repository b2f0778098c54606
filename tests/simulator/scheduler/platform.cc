// base/mutex.h, base/thread.h and base/clock.h for programs of the simulator: as base's own outside of a simulation,
// the scheduler's inside of one. Defines all of their symbols, so that the linker takes none of base's.
#ifndef ELIDEFS_SANITIZED

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "tests/simulator/scheduler/scheduler_impl.h"

namespace elidefs {

using simulator::Fiber;
using simulator::Scheduler;

// In a simulation one system thread runs everything, so the mutex itself tells whether it is held: by whichever fiber.
void Mutex::Lock() {
  Scheduler* const scheduler = Scheduler::Current();
  if (scheduler == nullptr) return mutex_.lock();
  scheduler->MayPreempt();
  while (!mutex_.try_lock()) scheduler->Wait(this, "lock", std::nullopt);
}

void Mutex::Unlock() {
  mutex_.unlock();
  Scheduler* const scheduler = Scheduler::Current();
  if (scheduler == nullptr) return;
  scheduler->WakeAll(this);
  scheduler->MayPreempt();
}

bool Mutex::TryLock() {
  return mutex_.try_lock();
}

void CondVar::Wait(Mutex& mutex) {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) {
    mutex.mutex_.unlock();
    scheduler->WakeAll(&mutex);
    scheduler->Wait(this, "wait", std::nullopt);
    while (!mutex.mutex_.try_lock()) scheduler->Wait(&mutex, "lock", std::nullopt);
    return;
  }
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  cond_.wait(lock);
  lock.release();
}

bool CondVar::WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) {
    mutex.mutex_.unlock();
    scheduler->WakeAll(&mutex);
    const bool notified = scheduler->Wait(this, "wait for a time", timeout);
    while (!mutex.mutex_.try_lock()) scheduler->Wait(&mutex, "lock", std::nullopt);
    return notified;
  }
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  const bool notified = cond_.wait_for(lock, timeout) == std::cv_status::no_timeout;
  lock.release();
  return notified;
}

void CondVar::NotifyOne() {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) return scheduler->WakeOne(this);
  cond_.notify_one();
}

void CondVar::NotifyAll() {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) return scheduler->WakeAll(this);
  cond_.notify_all();
}

Thread::Thread(std::string name, absl::AnyInvocable<void()> body) {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) {
    simulated_ = scheduler->Start(std::move(name), std::move(body));
    return;
  }
  thread_ = std::thread(std::move(body));
  name.resize(std::min<size_t>(name.size(), 15));
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

Thread::~Thread() = default;
Thread::Thread(Thread&&) noexcept = default;
Thread& Thread::operator=(Thread&&) noexcept = default;

void Thread::Join() {
  if (simulated_ == nullptr) return thread_.join();
  Scheduler::Current()->Join(std::static_pointer_cast<Fiber>(simulated_));
  simulated_.reset();
}

uint32_t Thread::CurrentCpu() {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) return scheduler->DrawCpu();
  return static_cast<uint32_t>(std::max(sched_getcpu(), 0));
}

void*& Thread::Slot() {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) return scheduler->slot();
  thread_local void* slot = nullptr;
  return slot;
}

SteadyClock::time_point SteadyClock::now() {
  if (const Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) return scheduler->now();
  return time_point(std::chrono::steady_clock::now().time_since_epoch());
}

namespace {

timespec SimulatedTimeOfDay(const Scheduler& scheduler) {
  const auto since = scheduler.now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {.tv_sec = seconds.count(), .tv_nsec = (since - seconds).count()};
}

}  // namespace

timespec TimeOfDay() {
  if (const Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) {
    return SimulatedTimeOfDay(*scheduler);
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

timespec CoarseTimeOfDay() {
  return TimeOfDay();
}

void SleepFor(std::chrono::nanoseconds duration) {
  if (Scheduler* const scheduler = Scheduler::Current(); scheduler != nullptr) {
    scheduler->Wait(scheduler, "sleep", duration);
    return;
  }
  std::this_thread::sleep_for(duration);
}

}  // namespace elidefs

#endif
