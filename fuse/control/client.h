// The client's side of the control socket (protocol: fuse/control/server.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace elidefs::fuse {

// One connection, one request.
class ControlClient {
 public:
  // Errors: ECONNREFUSED or ENOENT when nobody listens, EACCES.
  static absl::StatusOr<ControlClient> Connect(const std::string& path);
  ControlClient(ControlClient&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ControlClient(const ControlClient&) = delete;
  ~ControlClient();

  absl::Status Send(std::string_view request);
  // One line without its newline; ECONNRESET if the server ended first, ETIMEDOUT if nothing came for so long
  // (negative: waits for ever).
  absl::StatusOr<std::string> ReadLine(int timeout_ms = -1);
  // Everything up to the end (at most 1 MiB); ECONNRESET if that is nothing.
  absl::StatusOr<std::string> ReadAll(int timeout_ms = -1);
  // The process at the other end.
  absl::StatusOr<pid_t> ServerProcess() const;

 private:
  explicit ControlClient(int fd) : fd_(fd) {}
  int fd_;
};

// Sends `request` and returns the answer; an answer that starts with "error: " is a failure.
absl::StatusOr<std::string> ControlCall(const std::string& socket_path, std::string_view request, int timeout_ms = -1);

}  // namespace elidefs::fuse
