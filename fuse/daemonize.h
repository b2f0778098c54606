// Going into the background: the parent waits until the child is ready or says why not.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace elidefs::fuse {

// The child's end of the start-up pipe. In the foreground there is none and everything is a no-op that succeeds.
class StartupReport {
 public:
  StartupReport() = default;
  explicit StartupReport(int fd) : fd_(fd) {}
  StartupReport(StartupReport&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  StartupReport& operator=(StartupReport&&) = delete;
  ~StartupReport();

  bool background() const { return fd_ >= 0; }
  // Lets the parent exit with status 0 and detaches from the terminal. False if the parent is gone already (the user
  // interrupted it).
  bool Ready();
  // The parent prints `message` and exits with status 1. Returns false in the foreground: the caller prints it then.
  bool Failed(std::string_view message);

 private:
  int fd_ = -1;
};

struct ForkResult {
  bool parent = false;
  absl::Status status;  // parent: OK if the child is ready, else its message
  int report_fd = -1;   // child
};

// Forks; must be called while the process has one thread. The child leads a new session, has the root as its working
// directory and no inherited descriptors but stdin, stdout and stderr. The parent returns when the child reported.
ForkResult ForkDaemon();

}  // namespace elidefs::fuse
