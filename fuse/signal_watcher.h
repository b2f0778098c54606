// SIGTERM, SIGINT and SIGHUP unmount, and the daemon goes on serving while the kernel writes its dirty pages.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

namespace elidefs::fuse {

// Blocks the three signals for the calling thread and those it creates. Call before any thread exists.
void BlockStopSignals();

// Owns the thread that receives the signals; they stay blocked everywhere else.
class SignalWatcher {
 public:
  // `stop` is called on the watcher's thread, once for each signal; may block.
  static absl::StatusOr<std::unique_ptr<SignalWatcher>> Start(std::function<void(int signal_number)> stop);
  ~SignalWatcher();

 private:
  SignalWatcher(int signal_fd, int end_event, std::function<void(int)> stop);
  void Run();

  const int signal_fd_;
  const int end_event_;
  const std::function<void(int)> stop_;
  std::thread thread_;
};

}  // namespace elidefs::fuse
