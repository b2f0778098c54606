#include "fuse/mount_command.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "fuse/control/socket_path.h"
#include "fuse/daemon_log.h"
#include "fuse/daemonize.h"
#include "fuse/mount_table.h"
#include "fuse/served_mount.h"
#include "fuse/signal_watcher.h"
#include "fuse/unmounter.h"

namespace elidefs::fuse {
namespace {

absl::Status FileError(int error, const std::string& path) {
  return ErrnoError(error, absl::StrCat(path, ": ", strerror(error)));
}

// A daemon that died leaves a mount on which every call fails with ENOTCONN.
absl::Status RemoveDeadMount(const MountEntry& dead, DaemonLog* log) {
  ELIDEFS_RETURN_IF_ERROR(DetachDead(dead.mountpoint));
  if (const absl::StatusOr<std::string> socket = SocketPathOf(dead); socket.ok()) unlink(socket->c_str());
  log->Warning(absl::StrCat("the daemon of the mount on ", dead.mountpoint, " (", dead.source,
                            ") had died; removed that mount"));
  return absl::OkStatus();
}

absl::Status CheckMountpoint(const std::string& mountpoint, const std::string& source, DaemonLog* log) {
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  const MountEntry* present = FindMount(table, mountpoint);
  struct statvfs space = {};
  // Not stat(2): the kernel may know the root's attributes and not notice that nobody is there.
  if (present != nullptr && present->IsElidefs() && statvfs(mountpoint.c_str(), &space) != 0 && errno == ENOTCONN) {
    ELIDEFS_RETURN_IF_ERROR(RemoveDeadMount(*present, log));
    present = nullptr;
  }
  struct stat attributes = {};
  if (stat(mountpoint.c_str(), &attributes) != 0) return FileError(errno, mountpoint);
  if (!S_ISDIR(attributes.st_mode)) return FileError(ENOTDIR, mountpoint);
  if (present != nullptr && present->IsElidefs() && present->source == source) {
    return ErrnoError(EBUSY, absl::StrCat(source, " is already mounted on ", mountpoint));
  }
  return absl::OkStatus();
}

// Makes both names absolute, since the daemon leaves the working directory, and checks what needs no daemon.
absl::Status CheckArguments(Command* command, DaemonLog* log) {
  if (command->source.empty()) return ErrnoError(EINVAL, "the source is empty: name an image file or a block device");
  const std::unique_ptr<char, decltype(&free)> source(realpath(command->source.c_str(), nullptr), &free);
  if (source == nullptr) return FileError(errno, command->source);
  command->source = source.get();
  ELIDEFS_ASSIGN_OR_RETURN(command->mountpoint, ResolveMountPoint(command->mountpoint));
  return CheckMountpoint(command->mountpoint, command->source, log);
}

int ReportFailure(const absl::Status& status, StartupReport* report, DaemonLog* log) {
  const std::string message(status.message());
  if (report->Failed(message)) log->UseSyslog();  // the parent tells the user
  log->Error(message);
  return 1;
}

int Serve(const Command& command, const VolumeOpener& open_volume, StartupReport report, DaemonLog* log) {
  BlockStopSignals();
  signal(SIGPIPE, SIG_IGN);
  VolumeOptions volume_options = MakeVolumeOptions(command.options);
  volume_options.log = [log](Severity severity, std::string_view message) { log->Write(severity, message); };
  absl::StatusOr<std::unique_ptr<Volume>> volume = open_volume(command.source, volume_options);
  if (!volume.ok()) return ReportFailure(volume.status(), &report, log);
  ServedMount mount(command, *std::move(volume), log);
  if (absl::Status status = mount.Start(); !status.ok()) {
    if (const absl::Status closed = mount.Close(); !closed.ok()) log->Error(std::string(closed.message()));
    return ReportFailure(status, &report, log);
  }
  return mount.ServeUntilUnmounted(&report);
}

}  // namespace

int RunMount(const Command& original, const VolumeOpener& open_volume) {
  Command command = original;
  DaemonLog log(command.options.debug);
  if (absl::Status status = CheckArguments(&command, &log); !status.ok()) {
    log.Error(std::string(status.message()));
    return 1;
  }
  if (command.fake) return 0;
  if (command.foreground) return Serve(command, open_volume, StartupReport(), &log);
  const ForkResult fork_result = ForkDaemon();
  if (!fork_result.parent) return Serve(command, open_volume, StartupReport(fork_result.report_fd), &log);
  if (fork_result.status.ok()) return 0;
  log.Error(std::string(fork_result.status.message()));
  return 1;
}

}  // namespace elidefs::fuse
