#include "fuse/signal_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

absl::StatusOr<std::unique_ptr<SignalWatcher>> SignalWatcher::Start(std::function<void(int)> stop) {
  const sigset_t signals = StopSignals();
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  const int end_event = eventfd(0, EFD_CLOEXEC);
  if (signal_fd < 0 || end_event < 0) {
    const int error = errno;
    if (signal_fd >= 0) close(signal_fd);
    if (end_event >= 0) close(end_event);
    return ErrnoError(error, absl::StrCat("cannot watch signals: ", strerror(error)));
  }
  return std::unique_ptr<SignalWatcher>(new SignalWatcher(signal_fd, end_event, std::move(stop)));
}

SignalWatcher::SignalWatcher(int signal_fd, int end_event, std::function<void(int)> stop)
    : signal_fd_(signal_fd), end_event_(end_event), stop_(std::move(stop)) {
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(end_event_, &one, sizeof(one));
  thread_.join();
  close(signal_fd_);
  close(end_event_);
}

void SignalWatcher::Run() {
  while (true) {
    pollfd poll_fds[] = {{end_event_, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    if (poll(poll_fds, 2, -1) < 0 && errno != EINTR) return;
    if (poll_fds[0].revents != 0) return;
    signalfd_siginfo info = {};
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) stop_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace elidefs::fuse
