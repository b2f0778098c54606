#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace elidefs {

Thread::Thread(std::string name, absl::AnyInvocable<void()> body) : thread_(std::move(body)) {
  name.resize(std::min<size_t>(name.size(), 15));
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

Thread::~Thread() = default;
Thread::Thread(Thread&&) noexcept = default;
Thread& Thread::operator=(Thread&&) noexcept = default;

void Thread::Join() {
  thread_.join();
}

uint32_t Thread::CurrentCpu() {
  return static_cast<uint32_t>(std::max(sched_getcpu(), 0));
}

void*& Thread::Slot() {
  thread_local void* slot = nullptr;
  return slot;
}

}  // namespace elidefs
