#include "fuse/served_mount.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "fuse/control/socket_path.h"
#include "fuse/mount_table.h"
#include "fuse/unmounter.h"

namespace elidefs::fuse {
namespace {

constexpr unsigned kReadaheadKib = 1024;

// A volume that was opened read-only (asked for, or found damaged) is shown as such by the kernel too.
Command WithState(Command command, const Volume& volume) {
  if (volume.read_only()) command.options.read_only = true;
  return command;
}

}  // namespace

ServedMount::ServedMount(const Command& command, std::unique_ptr<Volume> volume, DaemonLog* log)
    : command_(WithState(command, *volume)),
      description_{command.source, command.mountpoint, getpid(), command.options.writeback_cache},
      log_(log),
      daemon_(std::move(volume), command.options.writeback_cache, log) {
  if (command_.options.read_only && !command.options.read_only) {
    log_->Warning(absl::StrCat(command_.source, ": ", daemon_.volume().Stats().read_only_reason));
  }
}

ServedMount::~ServedMount() = default;

absl::Status ServedMount::Start() {
  ELIDEFS_ASSIGN_OR_RETURN(session_, Session::Create(&daemon_, command_.options, command_.source));
  ELIDEFS_RETURN_IF_ERROR(session_->Mount(command_.mountpoint));
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  const MountEntry* entry = FindMount(table, command_.mountpoint);
  if (entry == nullptr || !entry->IsElidefs()) {
    return ErrnoError(EIO, absl::StrCat(command_.mountpoint, " was unmounted by somebody else"));
  }
  device_ = entry->device;
  return absl::OkStatus();
}

absl::Status ServedMount::Close() {
  absl::Status status = daemon_.Shutdown();
  session_.reset();  // last: requests in flight answer through it
  if (status.ok()) return status;
  const std::string reason(status.message());
  return ErrnoError(StatusToErrno(status), absl::StrCat(command_.source, " could not be closed clean: ", reason,
                                                        absl::StrContains(reason, "e2fsck") ? "" : "; run e2fsck"));
}

// Until the mount is usable this process itself makes it busy; a stop that comes earlier is carried out then.
void ServedMount::StopWhenStarted(std::string_view cause) {
  {
    MutexLock lock(start_mutex_);
    if (!started_ && early_stop_.empty()) {
      early_stop_ = std::string(cause);
      log_->Info(absl::StrCat("stops as soon as the mount has started: ", early_stop_));
      return;
    }
  }
  Stop(cause);
}

void ServedMount::Stop(std::string_view cause) {
  log_->Info(absl::StrCat("unmounting ", command_.mountpoint, ": ", std::string(cause)));
  const absl::Status status = UnmountDevice(command_.mountpoint, device_);
  if (!status.ok()) log_->Error(absl::StrCat(std::string(status.message()), "; still mounted"));
}

// The kernel's default window is 128 KiB. Best effort: sysfs may be read-only, and only root may write there.
void ServedMount::RaiseReadahead() {
  std::ofstream file(absl::StrCat("/sys/class/bdi/", major(device_), ":", minor(device_), "/read_ahead_kb"));
  file << kReadaheadKib << "\n";
}

std::string ServedMount::AnswerControl(std::string_view request) {
  if (request == "stat") return FormatStatsJson(daemon_.volume().Stats(), description_);
  if (request == "stat text") return FormatStatsText(daemon_.volume().Stats(), description_);
  if (request == "pid") return absl::StrCat(description_.pid, "\n");
  if (request == "flush") {
    const absl::Status status = daemon_.volume().Flush();
    return status.ok() ? "ok\n" : absl::StrCat("error: ", std::string(status.message()), "\n");
  }
  return "error: unknown request\n";
}

absl::Status ServedMount::StartControl() {
  ELIDEFS_ASSIGN_OR_RETURN(const std::string path, OwnSocketPath(device_));
  ELIDEFS_ASSIGN_OR_RETURN(
      control_, ControlServer::Start(path, [this](std::string_view request) { return AnswerControl(request); }));
  return absl::OkStatus();
}

void ServedMount::BecomeReady(StartupReport* report) {
  // Returns when the kernel and the session have agreed on the protocol and the root inode was read.
  struct stat root = {};
  if (stat(command_.mountpoint.c_str(), &root) != 0) {
    const std::string message = absl::StrCat(command_.mountpoint, ": the mount does not answer: ", strerror(errno));
    if (!report->Failed(message)) log_->Error(message);
    Stop("it does not answer");
    return;
  }
  RaiseReadahead();
  if (const absl::Status status = StartControl(); !status.ok()) {
    log_->Warning(absl::StrCat("no control socket, so 'elidefs stat' will not work: ", std::string(status.message())));
  }
  if (report->background()) log_->UseSyslog();
  ready_ = true;
  if (!report->Ready()) {
    Stop("the mount command was interrupted");
    return;
  }
  log_->Info(absl::StrCat("mounted ", command_.source, " on ", command_.mountpoint));
}

void ServedMount::FinishStart() {
  std::string early_stop;
  {
    MutexLock lock(start_mutex_);
    started_ = true;
    early_stop = early_stop_;
  }
  if (!early_stop.empty()) Stop(early_stop);
}

int ServedMount::ServeUntilUnmounted(StartupReport* report) {
  absl::StatusOr<std::unique_ptr<SignalWatcher>> signals =
      SignalWatcher::Start([this](int number) { StopWhenStarted(strsignal(number)); });
  if (!signals.ok()) log_->Warning(std::string(signals.status().message()));
  std::thread ready_thread([this, report] {
    BecomeReady(report);
    FinishStart();
  });
  const absl::Status served = session_->Run();
  if (!served.ok()) {
    // Nobody serves the mount any more. Whoever waits on it, the ready thread included, is released when Close drops
    // it.
    log_->Error(std::string(served.message()));
    if (const absl::Status status = DetachDead(command_.mountpoint); !status.ok()) {
      log_->Error(std::string(status.message()));
    }
  } else {
    ready_thread.join();
    if (signals.ok()) signals->reset();
    if (control_ != nullptr) control_->StopServing();
  }
  const absl::Status closed = Close();
  if (ready_thread.joinable()) ready_thread.join();
  if (!closed.ok()) log_->Error(std::string(closed.message()));
  if (control_ != nullptr) {
    control_->Finish(closed.ok() ? "closed\n" : absl::StrCat("error: ", std::string(closed.message()), "\n"));
  }
  log_->Info(absl::StrCat("unmounted ", command_.source));
  return closed.ok() && served.ok() && ready_ ? 0 : 1;
}

}  // namespace elidefs::fuse
