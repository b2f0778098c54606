// ServedMount: one mounted volume with everything that serves it: session, signals, control socket.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "elidefs/volume.h"
#include "fuse/command_line.h"
#include "fuse/control/server.h"
#include "fuse/control/stats_format.h"
#include "fuse/daemon.h"
#include "fuse/daemon_log.h"
#include "fuse/daemonize.h"
#include "fuse/session.h"
#include "fuse/signal_watcher.h"

namespace elidefs::fuse {

// Used by one thread: Start, ServeUntilUnmounted, or Close after a failed Start.
class ServedMount {
 public:
  ServedMount(const Command& command, std::unique_ptr<Volume> volume, DaemonLog* log);
  ~ServedMount();

  // Mounts. Requests are queued until ServeUntilUnmounted.
  absl::Status Start();
  // Serves, reports readiness once the mount answers, and closes the volume at the end. Returns the exit status.
  int ServeUntilUnmounted(StartupReport* report);
  // Drops what is open, closes the volume and takes the mount down if it still exists.
  absl::Status Close();

 private:
  void BecomeReady(StartupReport* report);  // on a thread of its own, beside the session's
  void FinishStart();
  absl::Status StartControl();
  void RaiseReadahead();
  std::string AnswerControl(std::string_view request);
  void StopWhenStarted(std::string_view cause);
  void Stop(std::string_view cause);  // unmounts through the kernel

  const Command command_;
  MountDescription description_;
  DaemonLog* const log_;
  Daemon daemon_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<SignalWatcher> signals_;
  std::unique_ptr<ControlServer> control_;  // set by BecomeReady, used by others after that thread was joined
  bool ready_ = false;                      // likewise
  dev_t device_ = 0;                        // of the mount; set by Start
  Mutex start_mutex_;
  bool started_ ABSL_GUARDED_BY(start_mutex_) = false;
  std::string early_stop_ ABSL_GUARDED_BY(start_mutex_);  // why to stop then; empty: go on
};

}  // namespace elidefs::fuse
