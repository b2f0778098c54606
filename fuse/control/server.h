// The daemon's side of the control socket.
//
// Protocol: a client sends one line, at most 256 bytes, within two seconds: `stat` (JSON), `stat text`, `flush`, `pid`
// or `wait`. The answer is text up to the end of the connection; it starts with "error: " if the request failed. `wait`
// is answered with "waiting\n" at once and, when the volume is closed, with "closed\n" or "error: ...\n".
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/worker_pool.h"

namespace elidefs::fuse {

inline constexpr size_t kMaxControlRequestBytes = 256;
inline constexpr int kControlTimeoutMs = 2000;
inline constexpr size_t kMaxControlWaiters = 16;
inline constexpr size_t kControlThreads = 4;
inline constexpr size_t kMaxControlClients = 64;  // being served or in the queue; more are told so

// Owns a thread that accepts and a few that answer, so that a flush, which takes as long as the device does, keeps
// nobody from looking at the statistics.
class ControlServer {
 public:
  // Called on one of the server's threads, on several at once, for every request but `wait`; may block.
  using Answer = std::function<std::string(std::string_view request)>;

  // Creates the folder (0755) and the socket (0600). What is at `path` belongs to a mount that is gone and is removed.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& path, Answer answer);
  // Clients that still wait get "error: ...".
  ~ControlServer();

  // Returns when no Answer runs and none will; clients that wait stay connected. The socket is removed. Idempotent.
  void StopServing();
  // Stops serving and gives `result` to everybody who waits.
  void Finish(std::string_view result);

 private:
  ControlServer(std::string path, Answer answer, int listener, int stop_event);
  void Run();
  void Serve(int client);
  void AddWaiter(int client);

  const std::string path_;
  const std::pair<dev_t, ino_t> socket_file_;  // what `path_` names as long as it is ours
  const Answer answer_;
  const int listener_;
  const int stop_event_;
  Mutex mutex_;
  std::vector<int> waiters_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> clients_{0};
  WorkerPool workers_{kControlThreads, "elidefs-control"};
  std::thread thread_;
};

}  // namespace elidefs::fuse
