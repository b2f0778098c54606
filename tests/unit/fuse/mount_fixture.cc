#include "tests/unit/fuse/mount_fixture.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "fuse/client_commands.h"
#include "fuse/command_line.h"
#include "fuse/control/client.h"
#include "fuse/control/socket_path.h"
#include "fuse/mount_command.h"
#include "fuse/mount_table.h"
#include "tests/unit/fuse/fake_volume.h"

namespace elidefs::fuse {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool WaitUntil(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Runs `body` in a forked process whose output goes to a file.
CommandResult RunForked(const std::string& output_path, const std::function<int()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int output = open(output_path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    const int status = body();
    fflush(nullptr);
    _exit(status);
  }
  CommandResult result;
  result.status = ExitStatus(child);
  result.output = ReadFile(output_path);
  return result;
}

}  // namespace

int ExitStatus(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void MountTest::SetUp() {
  ASSERT_EQ(access("/dev/fuse", R_OK | W_OK), 0) << "these tests mount: they need /dev/fuse and the right to use it";
  char folder[] = "/tmp/elidefs_test_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  folder_ = folder;
  mountpoint_ = folder_ + "/mnt";
  source_ = folder_ + "/source,1";
  closed_path_ = folder_ + "/closed";
  ASSERT_EQ(mkdir(mountpoint_.c_str(), 0755), 0);
  ASSERT_TRUE(std::ofstream(source_) << "x");
}

void MountTest::TearDown() {
  if (IsMounted()) {
    const pid_t daemon = DaemonProcess();
    if (daemon > 0) kill(daemon, SIGKILL);
    while (IsMounted() && umount2(mountpoint_.c_str(), MNT_DETACH) == 0) {
    }
  }
  for (const char* name : {"/source,1", "/closed", "/output", "/foreground"}) unlink((folder_ + name).c_str());
  EXPECT_EQ(rmdir(mountpoint_.c_str()), 0);
  EXPECT_EQ(rmdir(folder_.c_str()), 0);
}

int MountTest::RunMountHere(const std::string& options, bool foreground, const absl::Status& open_status,
                            const absl::Status& close_status) {
  std::vector<std::string> arguments = {"elidefs", "mount", "-o", options, source_, mountpoint_};
  if (foreground) arguments.push_back("-f");
  const absl::StatusOr<Command> command = ParseCommandLine(arguments, geteuid() == 0);
  if (!command.ok()) return 2;
  return RunMount(*command, [&](const std::string&, const VolumeOptions&) -> absl::StatusOr<std::unique_ptr<Volume>> {
    if (!open_status.ok()) return open_status;
    return std::make_unique<FakeVolume>(closed_path_, close_status);
  });
}

CommandResult MountTest::Mount(const std::string& options, absl::Status open_status, absl::Status close_status) {
  return RunForked(folder_ + "/output", [&] { return RunMountHere(options, false, open_status, close_status); });
}

pid_t MountTest::MountInForeground(const std::string& options) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int output = open((folder_ + "/foreground").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    _exit(RunMountHere(options, true, absl::OkStatus(), absl::OkStatus()));
  }
  EXPECT_TRUE(WaitUntil([&] { return DaemonProcess() == child; })) << ReadFile(folder_ + "/foreground");
  return child;
}

CommandResult MountTest::UnmountCommand() {
  return RunForked(folder_ + "/output", [&] { return RunUnmount(mountpoint_); });
}

CommandResult MountTest::StatCommand(bool json) {
  return RunForked(folder_ + "/output", [&] { return RunStat(mountpoint_, json); });
}

CommandResult MountTest::FlushCommand() {
  return RunForked(folder_ + "/output", [&] { return RunFlush(mountpoint_); });
}

pid_t MountTest::DaemonProcess() {
  const absl::StatusOr<MountEntry> mount = FindElidefsMount(mountpoint_);
  if (!mount.ok()) return -1;
  const absl::StatusOr<std::string> answer = ControlCall(*SocketPathOf(*mount), "pid");
  int process = -1;
  return answer.ok() && absl::SimpleAtoi(*answer, &process) ? process : -1;
}

bool MountTest::IsMounted() const {
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  return table.ok() && FindMount(*table, mountpoint_) != nullptr;
}

bool MountTest::WaitUntilUnmounted() const {
  return WaitUntil([&] { return !IsMounted(); });
}

std::string MountTest::ClosedReport() const {
  WaitUntil([&] { return !ReadFile(closed_path_).empty(); });
  return ReadFile(closed_path_);
}

}  // namespace elidefs::fuse
