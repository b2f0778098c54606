#include "fuse/control/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

constexpr size_t kMaxAnswerBytes = 1U << 20U;

absl::Status SystemError(int error, const std::string& what) {
  return ErrnoError(error, absl::StrCat(what, ": ", strerror(error)));
}

// Up to `size` bytes; 0 at the end. A negative timeout waits for ever.
absl::StatusOr<size_t> Receive(int fd, char* buffer, size_t size, int timeout_ms) {
  while (true) {
    pollfd poll_fd = {fd, POLLIN, 0};
    const int ready = poll(&poll_fd, 1, timeout_ms);
    if (ready == 0) return ErrnoError(ETIMEDOUT, "no answer");
    if (ready < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "control socket");
    }
    const ssize_t count = recv(fd, buffer, size, 0);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) return SystemError(errno, "control socket");
  }
}

}  // namespace

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return SystemError(ENAMETOOLONG, path);
  memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError(errno, path);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    close(fd);
    return SystemError(error, path);
  }
  return ControlClient(fd);
}

ControlClient::~ControlClient() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ControlClient::Send(std::string_view request) {
  const std::string line = absl::StrCat(std::string(request), "\n");
  if (send(fd_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return SystemError(errno, "control socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ControlClient::ReadLine(int timeout_ms) {
  std::string line;
  while (line.size() < kMaxAnswerBytes) {
    char letter = 0;
    ELIDEFS_ASSIGN_OR_RETURN(const size_t count, Receive(fd_, &letter, 1, timeout_ms));
    if (count == 0) break;
    if (letter == '\n') return line;
    line += letter;
  }
  return ErrnoError(ECONNRESET, "the daemon ended without an answer");
}

absl::StatusOr<std::string> ControlClient::ReadAll(int timeout_ms) {
  std::string answer;
  while (answer.size() < kMaxAnswerBytes) {
    char buffer[4096];
    ELIDEFS_ASSIGN_OR_RETURN(const size_t count, Receive(fd_, buffer, sizeof(buffer), timeout_ms));
    if (count == 0) break;
    answer.append(buffer, count);
  }
  if (answer.empty()) return ErrnoError(ECONNRESET, "the daemon ended without an answer");
  return answer;
}

absl::StatusOr<pid_t> ControlClient::ServerProcess() const {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return SystemError(errno, "control socket");
  return credentials.pid;
}

absl::StatusOr<std::string> ControlCall(const std::string& socket_path, std::string_view request, int timeout_ms) {
  ELIDEFS_ASSIGN_OR_RETURN(ControlClient client, ControlClient::Connect(socket_path));
  ELIDEFS_RETURN_IF_ERROR(client.Send(request));
  ELIDEFS_ASSIGN_OR_RETURN(std::string answer, client.ReadAll(timeout_ms));
  absl::string_view text = answer;
  if (absl::ConsumePrefix(&text, "error: ")) {
    return ErrnoError(EIO, std::string(absl::StripTrailingAsciiWhitespace(text)));
  }
  return answer;
}

}  // namespace elidefs::fuse
