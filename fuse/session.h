// Session: the connection to the kernel of one mount, and the threads that take requests from it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "fuse/daemon.h"
#include "fuse/fuse_api.h"
#include "fuse/mount_options.h"

namespace elidefs::fuse {

class Session {
 public:
  // `daemon` outlives the session and learns of it.
  static absl::StatusOr<std::unique_ptr<Session>> Create(Daemon* daemon, const MountOptions& options,
                                                         const std::string& source);
  // Unmounts lazily if the mount still exists. All requests have been answered.
  ~Session();

  // After this the kernel queues requests; they are answered once Run is called.
  absl::Status Mount(const std::string& mountpoint);
  // Serves until the mount is gone. Installs no signal handlers: libfuse's own ones end the loop at once, and the
  // kernel would lose its dirty pages.
  absl::Status Run();

 private:
  Session(fuse_session* session, uint32_t max_threads) : session_(session), max_threads_(max_threads) {}

  fuse_session* const session_;
  const uint32_t max_threads_;
  bool mounted_ = false;
};

// What the daemon asks of the connection; for fuse_lowlevel_ops::init.
void NegotiateConnection(bool writeback_cache, fuse_conn_info* connection);

}  // namespace elidefs::fuse
