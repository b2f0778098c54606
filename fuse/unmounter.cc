#include "fuse/unmounter.h"

#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "fuse/mount_table.h"

namespace elidefs::fuse {
namespace {

absl::Status UnmountError(int error, const std::string& mountpoint, std::string_view why) {
  return ErrnoError(error, absl::StrCat("cannot unmount ", mountpoint, ": ", std::string(why)));
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[512];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    if (text.size() < 4096) text.append(buffer, static_cast<size_t>(count));
  }
}

// Runs fusermount3 and tells EBUSY from other failures by its message, in the C locale.
absl::Status RunFusermount(const std::string& mountpoint, const char* flag) {
  int ends[2];
  if (pipe(ends) != 0) return UnmountError(errno, mountpoint, strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;  // the daemon blocks signals, its children must not
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  std::string program = "fusermount3";
  std::string flag_text = flag;
  std::string end_of_options = "--";
  std::string target = mountpoint;
  std::string locale = "LC_ALL=C";
  std::string path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
  char* arguments[] = {program.data(), flag_text.data(), end_of_options.data(), target.data(), nullptr};
  char* environment[] = {locale.data(), path.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), &actions, &attributes, arguments, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string message = ReadAll(ends[0]);
  close(ends[0]);
  if (error != 0) return UnmountError(error, mountpoint, absl::StrCat("fusermount3: ", strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  absl::StripTrailingAsciiWhitespace(&message);
  return UnmountError(absl::StrContains(message, "busy") ? EBUSY : EPERM, mountpoint, message);
}

absl::Status UnmountWithFlags(const std::string& mountpoint, int flags, const char* fusermount_flag) {
  if (geteuid() != 0) return RunFusermount(mountpoint, fusermount_flag);
  if (umount2(mountpoint.c_str(), UMOUNT_NOFOLLOW | flags) == 0) return absl::OkStatus();
  const int error = errno;
  return UnmountError(error, mountpoint,
                      error == EBUSY ? "it is busy: files are open, or it is a working directory" : strerror(error));
}

}  // namespace

absl::Status Unmount(const std::string& mountpoint) {
  return UnmountWithFlags(mountpoint, 0, "-u");
}

absl::Status UnmountDevice(const std::string& mountpoint, dev_t device) {
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  const MountEntry* top = FindMount(table, mountpoint);
  if (top == nullptr) return UnmountError(ENOENT, mountpoint, "it is detached already; its last user ends it");
  if (top->device != device) return UnmountError(ENOENT, mountpoint, "another mount covers it");
  return Unmount(mountpoint);
}

absl::Status DetachDead(const std::string& mountpoint) {
  return UnmountWithFlags(mountpoint, MNT_DETACH, "-uz");
}

}  // namespace elidefs::fuse
