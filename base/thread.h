// Thread: what std::thread is, in a form that the simulator can replace (see mutex.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"

namespace elidefs {

class Thread {
 public:
  Thread() = default;
  // Starts `body`. `name` is shown by ps -L, cut to 15 bytes.
  Thread(std::string name, absl::AnyInvocable<void()> body);
  // Joined before, or never started.
  ~Thread();
  Thread(Thread&&) noexcept;
  Thread& operator=(Thread&&) noexcept;

  bool joinable() const { return thread_.joinable() || simulated_ != nullptr; }
  void Join();

  // Where the calling thread runs: a hint, it may have moved on already.
  static uint32_t CurrentCpu();

  // One pointer per thread, null at its start: for marks that a thread leaves on its own stack.
  static void*& Slot();

 private:
  std::thread thread_;
  std::shared_ptr<void> simulated_;  // the simulator's
};

}  // namespace elidefs
