#include "fuse/control/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAcceptRetryMs = 100;

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int error = errno;
  return ErrnoError(error, absl::StrCat(std::string(what), " ", path, ": ", strerror(error)));
}

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

bool WaitFor(int fd, short events, Clock::time_point deadline) {
  pollfd poll_fd = {fd, events, 0};
  return poll(&poll_fd, 1, MillisecondsUntil(deadline)) > 0;
}

// The request without its newline, or nothing if it did not arrive whole in time.
std::optional<std::string> ReadRequest(int client) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kControlTimeoutMs);
  std::string request;
  while (request.size() <= kMaxControlRequestBytes && WaitFor(client, POLLIN, deadline)) {
    char buffer[kMaxControlRequestBytes];
    const ssize_t count = recv(client, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count <= 0) return std::nullopt;
    request.append(buffer, static_cast<size_t>(count));
    if (const size_t end = request.find('\n'); end != std::string::npos && end < kMaxControlRequestBytes) {
      return request.substr(0, end);
    }
  }
  return std::nullopt;
}

void WriteAll(int client, std::string_view text) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kControlTimeoutMs);
  while (!text.empty() && WaitFor(client, POLLOUT, deadline)) {
    const ssize_t count = send(client, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
}

// Closing a socket with unread data would reset the connection and lose the answer.
void Discard(int client) {
  char buffer[4096];
  for (int i = 0; i < 64 && recv(client, buffer, sizeof(buffer), MSG_DONTWAIT) > 0; ++i) {
  }
}

bool HungUp(int client) {
  pollfd poll_fd = {client, POLLRDHUP, 0};
  return poll(&poll_fd, 1, 0) != 0;
}

absl::StatusOr<int> Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return ErrnoError(ENAMETOOLONG, absl::StrCat("control socket ", path, ": name too long"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  const std::string folder = path.substr(0, path.rfind('/'));
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("cannot create", folder);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("cannot remove", path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return SystemError("cannot create", path);
  // bind gives the file the mode of the socket's inode, so nobody can connect before the mode is right.
  if (fchmod(listener, 0600) != 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 16) != 0) {
    const absl::Status status = SystemError("cannot listen on", path);
    close(listener);
    return status;
  }
  return listener;
}

std::pair<dev_t, ino_t> IdentityOf(const std::string& path) {
  struct stat attributes {};
  if (lstat(path.c_str(), &attributes) != 0) return {};
  return {attributes.st_dev, attributes.st_ino};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& path, Answer answer) {
  ELIDEFS_ASSIGN_OR_RETURN(const int listener, Listen(path));
  const int stop_event = eventfd(0, EFD_CLOEXEC);
  if (stop_event < 0) {
    const absl::Status status = SystemError("cannot serve", path);
    close(listener);
    unlink(path.c_str());
    return status;
  }
  return std::unique_ptr<ControlServer>(new ControlServer(path, std::move(answer), listener, stop_event));
}

ControlServer::ControlServer(std::string path, Answer answer, int listener, int stop_event)
    : path_(std::move(path)),
      socket_file_(IdentityOf(path_)),
      answer_(std::move(answer)),
      listener_(listener),
      stop_event_(stop_event) {
  thread_ = std::thread([this] { Run(); });
}

ControlServer::~ControlServer() {
  Finish("error: the daemon ended early\n");
  close(listener_);
  close(stop_event_);
}

void ControlServer::StopServing() {
  if (!thread_.joinable()) return;
  // The next mount may have got the same device number, and with it this name.
  if (IdentityOf(path_) == socket_file_) unlink(path_.c_str());
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof(one));
  thread_.join();
  workers_.Drain();
}

void ControlServer::Finish(std::string_view result) {
  StopServing();
  MutexLock lock(mutex_);
  for (const int waiter : waiters_) {
    WriteAll(waiter, result);
    close(waiter);
  }
  waiters_.clear();
}

void ControlServer::Run() {
  while (true) {
    pollfd poll_fds[] = {{stop_event_, POLLIN, 0}, {listener_, POLLIN, 0}};
    if (poll(poll_fds, 2, -1) < 0 && errno != EINTR) return;
    if (poll_fds[0].revents != 0) return;
    if (poll_fds[1].revents == 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      // Out of descriptors, most likely: the connection stays in the backlog, and poll would return at once again.
      poll(poll_fds, 1, kAcceptRetryMs);
      continue;
    }
    if (clients_.fetch_add(1) >= kMaxControlClients) {
      clients_.fetch_sub(1);
      WriteAll(client, "error: too many clients ask this mount at once; try again\n");
      close(client);
      continue;
    }
    workers_.Schedule([this, client] {
      Serve(client);
      clients_.fetch_sub(1);
    });
  }
}

void ControlServer::Serve(int client) {
  const std::optional<std::string> request = ReadRequest(client);
  if (request == "wait") {
    AddWaiter(client);
    return;
  }
  WriteAll(client, request.has_value() ? answer_(*request) : "error: no request line of at most 256 bytes\n");
  Discard(client);
  close(client);
}

void ControlServer::AddWaiter(int client) {
  MutexLock lock(mutex_);
  std::erase_if(waiters_, [](int waiter) {
    const bool gone = HungUp(waiter);
    if (gone) close(waiter);
    return gone;
  });
  if (waiters_.size() >= kMaxControlWaiters) {
    WriteAll(client, "error: too many clients wait for this mount\n");
    close(client);
    return;
  }
  WriteAll(client, "waiting\n");
  waiters_.push_back(client);
}

}  // namespace elidefs::fuse
