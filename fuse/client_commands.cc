#include "fuse/client_commands.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/mutex.h"
#include "fuse/control/client.h"
#include "fuse/control/socket_path.h"
#include "fuse/mount_table.h"
#include "fuse/unmounter.h"

namespace elidefs::fuse {
namespace {

constexpr int kStatTimeoutMs = 20000;
constexpr int kElsewhereIntervalMs = 1000;
constexpr int kDyingMs = 10000;  // between a daemon's last answer and its end

int Fail(const absl::Status& status) {
  fprintf(stderr, "elidefs: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Says what a failed connection means to the user.
absl::Status ExplainConnection(const absl::Status& status, const MountEntry& mount) {
  const int error = StatusToErrno(status);
  if (error == ENOENT || error == ECONNREFUSED) {
    return ErrnoError(error,
                      absl::StrCat("no daemon serves ", mount.mountpoint, "; if it has died, 'elidefs unmount ",
                                   mount.mountpoint, "' removes the mount and the next mount recovers the volume"));
  }
  if (error == EACCES || error == EPERM) {
    return ErrnoError(error, absl::StrCat(mount.mountpoint, ": only its owner and root may do this"));
  }
  if (error == ECONNRESET || error == EPIPE) {
    return ErrnoError(error, absl::StrCat(mount.mountpoint,
                                          ": its daemon ended or refused before it answered; if it has died, "
                                          "'elidefs unmount ",
                                          mount.mountpoint, "' removes the mount"));
  }
  if (error == ETIMEDOUT) {
    return ErrnoError(error, absl::StrCat(mount.mountpoint, ": its daemon does not answer; is it stopped?"));
  }
  return status;
}

absl::StatusOr<std::string> Ask(const std::string& mountpoint, std::string_view request, int timeout_ms) {
  ELIDEFS_ASSIGN_OR_RETURN(const MountEntry mount, FindElidefsMount(mountpoint));
  ELIDEFS_ASSIGN_OR_RETURN(const std::string path, SocketPathOf(mount));
  absl::StatusOr<std::string> answer = ControlCall(path, request, timeout_ms);
  if (!answer.ok()) return ExplainConnection(answer.status(), mount);
  return answer;
}

// Tells a user at a terminal every second that something still goes on.
class Progress {
 public:
  explicit Progress(std::string message) : message_(std::move(message)) {
    if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { Run(); });
  }
  ~Progress() {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    wake_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    const auto start = std::chrono::steady_clock::now();
    bool printed = false;
    MutexLock lock(mutex_);
    for (int second = 1; !done_; ++second) {
      const auto next = start + std::chrono::seconds(second);
      while (!done_ && std::chrono::steady_clock::now() < next) {
        wake_.WaitFor(mutex_, next - std::chrono::steady_clock::now());
      }
      if (done_) break;
      fprintf(stderr, "\relidefs: %s (%d s)", message_.c_str(), second);
      printed = true;
    }
    if (printed) fputc('\n', stderr);
  }

  const std::string message_;
  Mutex mutex_;
  CondVar wake_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// A descriptor that becomes readable when the process has exited, so that it cannot be mistaken for a later one.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t process) : fd_(static_cast<int>(syscall(SYS_pidfd_open, process, 0U))) {}
  ProcessHandle(const ProcessHandle&) = delete;
  ~ProcessHandle() {
    if (fd_ >= 0) close(fd_);
  }
  void WaitForExit() const {
    while (fd_ >= 0 && Poll(-1) < 0 && errno == EINTR) {
    }
  }
  // Whether it is gone, with all its threads, within this time.
  bool ExitsWithin(int timeout_ms) const { return fd_ < 0 ? error_ == ESRCH : Poll(timeout_ms) > 0; }

 private:
  int Poll(int timeout_ms) const {
    pollfd poll_fd = {fd_, POLLIN, 0};
    return poll(&poll_fd, 1, timeout_ms);
  }

  const int fd_;
  const int error_ = fd_ < 0 ? errno : 0;
};

// Nobody listens: the daemon has died, or it never had a control socket.
int UnmountWithoutDaemon(const MountEntry& mount, const absl::Status& why) {
  const absl::Status status = Unmount(mount.mountpoint);
  if (!status.ok() && StatusToErrno(status) == EBUSY) return Fail(status);
  if (!status.ok()) {
    if (const absl::Status detached = DetachDead(mount.mountpoint); !detached.ok()) return Fail(detached);
  }
  return Fail(ErrnoError(EIO, absl::StrCat("unmounted ", mount.mountpoint, ", but its daemon could not be asked (",
                                           std::string(why.message()), "); if it has died, the next mount of ",
                                           mount.source, " recovers the volume")));
}

// The daemon will tell this client how the volume was closed.
absl::Status RegisterAsWaiter(const MountEntry& mount, ControlClient* client) {
  ELIDEFS_RETURN_IF_ERROR(client->Send("wait"));
  ELIDEFS_ASSIGN_OR_RETURN(const std::string registered, client->ReadLine());
  if (registered == "waiting") return absl::OkStatus();
  return ErrnoError(EIO, absl::StrCat(mount.mountpoint, ": ", std::string(absl::StripPrefix(registered, "error: "))));
}

absl::Status UnmountAndWait(const MountEntry& mount, const ProcessHandle& daemon, ControlClient* client) {
  const Progress progress(absl::StrCat("waiting until ", mount.source, " is written"));
  ELIDEFS_RETURN_IF_ERROR(UnmountDevice(mount.mountpoint, mount.device));
  absl::StatusOr<std::string> result = client->ReadLine(kElsewhereIntervalMs);
  while (StatusToErrno(result.status()) == ETIMEDOUT) {
    if (const std::string place = MountedElsewhere(mount); !place.empty()) {
      return ErrnoError(
          EBUSY, absl::StrCat("unmounted ", mount.mountpoint, ", but ", mount.source, " is still mounted on ", place,
                              "; it is closed when that is unmounted too"));
    }
    result = client->ReadLine(kElsewhereIntervalMs);
  }
  daemon.WaitForExit();
  if (!result.ok()) {
    return ErrnoError(EIO, absl::StrCat("the daemon of ", mount.source,
                                        " died before the volume was clean; the next mount recovers it"));
  }
  absl::string_view text = *result;
  if (absl::ConsumePrefix(&text, "error: ")) return ErrnoError(EIO, std::string(text));
  return absl::OkStatus();
}

}  // namespace

int RunStat(const std::string& mountpoint, bool json) {
  const absl::StatusOr<std::string> answer = Ask(mountpoint, json ? "stat" : "stat text", kStatTimeoutMs);
  if (!answer.ok()) return Fail(answer.status());
  fwrite(answer->data(), 1, answer->size(), stdout);
  return fflush(stdout) == 0 ? 0 : 1;
}

int RunFlush(const std::string& mountpoint) {
  const absl::StatusOr<std::string> answer = Ask(mountpoint, "flush", /*timeout_ms=*/-1);
  return answer.ok() ? 0 : Fail(answer.status());
}

int RunUnmount(const std::string& mountpoint) {
  const absl::StatusOr<MountEntry> mount = FindElidefsMount(mountpoint);
  if (!mount.ok()) return Fail(mount.status());
  absl::StatusOr<std::string> path = SocketPathOf(*mount);
  if (!path.ok()) return UnmountWithoutDaemon(*mount, path.status());
  absl::StatusOr<ControlClient> client = ControlClient::Connect(*path);
  if (!client.ok()) {
    const int error = StatusToErrno(client.status());
    if (error == EACCES || error == EPERM) return Fail(ExplainConnection(client.status(), *mount));
    return UnmountWithoutDaemon(*mount, client.status());
  }
  const absl::StatusOr<pid_t> process = client->ServerProcess();
  if (!process.ok()) return Fail(process.status());
  const ProcessHandle daemon(*process);
  absl::Status status = RegisterAsWaiter(*mount, &*client);
  const int error = StatusToErrno(status);
  if (error == ECONNRESET || error == EPIPE) {
    // A daemon that is being killed takes connections until the last of its threads is gone.
    if (daemon.ExitsWithin(kDyingMs)) return UnmountWithoutDaemon(*mount, status);
    return Fail(ExplainConnection(status, *mount));
  }
  if (status.ok()) status = UnmountAndWait(*mount, daemon, &*client);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace elidefs::fuse
