#include "fuse/daemonize.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

constexpr char kReady = 'R';
constexpr char kFailed = 'F';  // followed by the message

void CloseInherited(int keep) {
  // Somebody else's locks and pipes must not live as long as the daemon.
  if (keep > 3) syscall(SYS_close_range, 3U, static_cast<unsigned>(keep) - 1, 0U);
  syscall(SYS_close_range, static_cast<unsigned>(keep) + 1, ~0U, 0U);
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

// What became of a child that ended without a word.
absl::Status SilentEnd(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    return ErrnoError(EIO, absl::StrCat("the daemon died before the mount was ready: ", strsignal(WTERMSIG(status))));
  }
  return ErrnoError(EIO, absl::StrCat("the daemon ended before the mount was ready, status ", WEXITSTATUS(status)));
}

}  // namespace

StartupReport::~StartupReport() {
  if (fd_ >= 0) close(fd_);
}

bool StartupReport::Ready() {
  if (fd_ < 0) return true;
  if (const int null = open("/dev/null", O_RDWR); null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    if (null > STDERR_FILENO) close(null);
  }
  const bool delivered = WriteAll(fd_, std::string_view(&kReady, 1));
  close(fd_);
  fd_ = -1;
  return delivered;
}

bool StartupReport::Failed(std::string_view message) {
  if (fd_ < 0) return false;
  WriteAll(fd_, absl::StrCat(std::string(1, kFailed), std::string(message)));
  close(fd_);
  fd_ = -1;
  return true;
}

ForkResult ForkDaemon() {
  ForkResult result;
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.parent = true;
    result.status = ErrnoError(errno, absl::StrCat("pipe: ", strerror(errno)));
    return result;
  }
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    umask(0);
    if (chdir("/") != 0) _exit(1);
    CloseInherited(ends[1]);
    result.report_fd = ends[1];
    return result;
  }
  result.parent = true;
  close(ends[1]);
  if (child < 0) {
    result.status = ErrnoError(errno, absl::StrCat("fork: ", strerror(errno)));
  } else if (const std::string report = ReadAll(ends[0]); report.empty()) {
    result.status = SilentEnd(child);
  } else if (report[0] != kReady) {
    result.status = ErrnoError(EIO, report.substr(1));
  }
  close(ends[0]);
  return result;
}

}  // namespace elidefs::fuse
