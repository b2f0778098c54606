// Mounting, signals, unmounting and what goes wrong with them, through the real kernel.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "fuse/mount_table.h"
#include "tests/unit/fuse/mount_fixture.h"

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A process whose parent does not collect it stays a zombie.
bool HasExited(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number;
  std::string name;
  std::string state;
  return !(file >> number >> name >> state) || state == "Z" || state == "X";
}

// Until the last thread is gone: the state in /proc is the first thread's, and a socket closes with the last one.
bool WaitUntilExited(pid_t process) {
  const auto handle = static_cast<int>(syscall(SYS_pidfd_open, process, 0U));
  if (handle < 0) return errno == ESRCH;
  pollfd poll_fd = {handle, POLLIN, 0};
  const int ready = poll(&poll_fd, 1, 10000);
  close(handle);
  return ready > 0;
}

class MountLifecycleTest : public MountTest {};

TEST_F(MountLifecycleTest, MountReturnsWhenUsableAndUnmountWhenClean) {
  const CommandResult mount = Mount();
  ASSERT_EQ(mount.status, 0) << mount.output;
  EXPECT_THAT(mount.output, IsEmpty());
  struct stat root = {};
  ASSERT_EQ(stat(mountpoint_.c_str(), &root), 0);
  EXPECT_EQ(root.st_ino, 2U);
  const absl::StatusOr<MountEntry> entry = FindElidefsMount(mountpoint_);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->source, source_);
  EXPECT_EQ(entry->device, root.st_dev);
  const pid_t daemon = DaemonProcess();
  ASSERT_GT(daemon, 0);
  EXPECT_EQ(getsid(daemon), daemon) << "a session of its own";

  const CommandResult unmount = UnmountCommand();
  EXPECT_EQ(unmount.status, 0) << unmount.output;
  EXPECT_FALSE(IsMounted());
  EXPECT_EQ(access(closed_path_.c_str(), F_OK), 0);
  EXPECT_TRUE(HasExited(daemon));
}

TEST_F(MountLifecycleTest, ReportsWhyTheVolumeDoesNotOpen) {
  const CommandResult mount = Mount("rw", ErrnoError(EINVAL, "the volume uses feature meta_bg"));
  EXPECT_EQ(mount.status, 1);
  EXPECT_EQ(mount.output, "elidefs: the volume uses feature meta_bg\n");
  EXPECT_FALSE(IsMounted());
}

TEST_F(MountLifecycleTest, ChecksTheMountpointAndTheSource) {
  rmdir(mountpoint_.c_str());
  CommandResult mount = Mount();
  EXPECT_EQ(mount.status, 1);
  EXPECT_THAT(mount.output, HasSubstr("/mnt: No such file or directory"));
  std::ofstream(mountpoint_) << "x";
  mount = Mount();
  EXPECT_EQ(mount.status, 1);
  EXPECT_THAT(mount.output, HasSubstr("/mnt: Not a directory"));
  unlink(mountpoint_.c_str());
  mkdir(mountpoint_.c_str(), 0755);
  unlink(source_.c_str());
  mount = Mount();
  EXPECT_EQ(mount.status, 1);
  EXPECT_THAT(mount.output, HasSubstr("source,1: No such file or directory"));
}

TEST_F(MountLifecycleTest, RefusesToMountTheSameTwice) {
  ASSERT_EQ(Mount().status, 0);
  const CommandResult again = Mount();
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.output, HasSubstr("is already mounted on"));
  EXPECT_EQ(UnmountCommand().status, 0);
}

TEST_F(MountLifecycleTest, ASignalUnmountsAndClosesTheVolume) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    unlink(closed_path_.c_str());
    ASSERT_EQ(Mount().status, 0);
    kill(DaemonProcess(), number);
    EXPECT_TRUE(WaitUntilUnmounted());
    EXPECT_THAT(ClosedReport(), HasSubstr("open files 0"));
  }
}

TEST_F(MountLifecycleTest, ForegroundExitStatus) {
  const pid_t daemon = MountInForeground();
  kill(daemon, SIGINT);
  EXPECT_EQ(ExitStatus(daemon), 0);
  EXPECT_FALSE(IsMounted());
  EXPECT_THAT(ClosedReport(), HasSubstr("open files 0"));
}

TEST_F(MountLifecycleTest, ABusyMountStaysUntilItIsIdle) {
  const pid_t daemon = MountInForeground();
  const int fd = open(Path("file").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  kill(daemon, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(IsMounted());
  EXPECT_EQ(write(fd, "abc", 3), 3) << "it goes on serving";
  const CommandResult unmount = UnmountCommand();
  EXPECT_EQ(unmount.status, 1);
  EXPECT_THAT(unmount.output, HasSubstr("busy"));
  std::ifstream log(folder_ + "/foreground");
  const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, HasSubstr("busy"));
  close(fd);
  kill(daemon, SIGTERM);
  EXPECT_EQ(ExitStatus(daemon), 0);
  EXPECT_THAT(ClosedReport(), HasSubstr("open files 0"));
}

TEST_F(MountLifecycleTest, ASignalLosesNoDirtyPages) {
  for (const char* options : {"rw", "writeback_cache"}) {
    unlink(closed_path_.c_str());
    ASSERT_EQ(Mount(options).status, 0);
    constexpr size_t kSize = 1U << 20U;
    const int fd = open(Path("file").c_str(), O_RDWR | O_CREAT, 0644);
    ASSERT_EQ(ftruncate(fd, kSize), 0);
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memset(memory, 7, kSize);
    munmap(memory, kSize);
    close(fd);
    const int other = open(Path("other").c_str(), O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 300; ++i) ASSERT_EQ(write(other, "0123456789", 10), 10);
    close(other);
    kill(DaemonProcess(), SIGTERM);
    EXPECT_TRUE(WaitUntilUnmounted());
    EXPECT_THAT(ClosedReport(), HasSubstr("open files 0"));
    const std::string report = ClosedReport();
    EXPECT_GE(std::stoul(report.substr(report.find("written ") + 8)), kSize + 3000) << options << ": " << report;
  }
}

TEST_F(MountLifecycleTest, AFailedCloseIsReported) {
  ASSERT_EQ(Mount("rw", absl::OkStatus(), ErrnoError(EIO, "flush failed")).status, 0);
  const CommandResult unmount = UnmountCommand();
  EXPECT_EQ(unmount.status, 1);
  EXPECT_THAT(unmount.output, HasSubstr("could not be closed clean: flush failed"));
}

TEST_F(MountLifecycleTest, APlainUmountEndsTheDaemonToo) {
  const pid_t daemon = MountInForeground();
  ASSERT_EQ(umount2(mountpoint_.c_str(), 0), 0);
  EXPECT_EQ(ExitStatus(daemon), 0);
}

TEST_F(MountLifecycleTest, ALazyUnmountEndsWithItsLastUser) {
  const pid_t daemon = MountInForeground();
  const int fd = open(Path("file").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(umount2(mountpoint_.c_str(), MNT_DETACH), 0);
  kill(daemon, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(write(fd, "abc", 3), 3);
  close(fd);
  EXPECT_EQ(ExitStatus(daemon), 0);
}

TEST_F(MountLifecycleTest, ADeadDaemonsMountIsReplaced) {
  ASSERT_EQ(Mount().status, 0);
  const pid_t daemon = DaemonProcess();
  kill(daemon, SIGKILL);
  struct stat attributes = {};
  ASSERT_TRUE(WaitUntilExited(daemon));
  const CommandResult statistics = StatCommand(false);
  EXPECT_EQ(statistics.status, 1);
  EXPECT_THAT(statistics.output, HasSubstr("no daemon serves"));
  const CommandResult mount = Mount();
  EXPECT_EQ(mount.status, 0);
  EXPECT_THAT(mount.output, HasSubstr("had died; removed that mount"));
  EXPECT_EQ(stat(mountpoint_.c_str(), &attributes), 0);
  EXPECT_EQ(UnmountCommand().status, 0);
  EXPECT_FALSE(IsMounted());
}

TEST_F(MountLifecycleTest, UnmountOfADeadDaemonsMount) {
  ASSERT_EQ(Mount().status, 0);
  const pid_t daemon = DaemonProcess();
  kill(daemon, SIGKILL);
  ASSERT_TRUE(WaitUntilExited(daemon));
  const CommandResult unmount = UnmountCommand();
  EXPECT_EQ(unmount.status, 1);
  EXPECT_THAT(unmount.output, HasSubstr("the next mount of"));
  EXPECT_FALSE(IsMounted());
}

TEST_F(MountLifecycleTest, UnmountWhileTheDaemonIsKilled) {
  ASSERT_EQ(Mount().status, 0);
  const pid_t daemon = DaemonProcess();
  kill(daemon, SIGSTOP);  // takes the connection and never answers it
  std::thread killer([daemon] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(daemon, SIGKILL);
  });
  const CommandResult unmount = UnmountCommand();
  killer.join();
  EXPECT_EQ(unmount.status, 1);
  EXPECT_THAT(unmount.output, HasSubstr("the next mount of"));
  EXPECT_FALSE(IsMounted());
}

TEST_F(MountLifecycleTest, StatAndFlush) {
  ASSERT_EQ(Mount("writeback_cache").status, 0);
  EXPECT_EQ(FlushCommand().status, 0);
  const CommandResult json = StatCommand(true);
  EXPECT_EQ(json.status, 0);
  EXPECT_THAT(json.output, HasSubstr("\"requested\": 1,"));
  EXPECT_THAT(json.output, HasSubstr("\"writeback_cache\": true"));
  const CommandResult text = StatCommand(false);
  EXPECT_THAT(text.output, HasSubstr(" of 1 needs "));
  EXPECT_EQ(UnmountCommand().status, 0);
  const CommandResult none = StatCommand(false);
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("is not a mount point"));
  EXPECT_EQ(UnmountCommand().status, 1);
}

}  // namespace
}  // namespace elidefs::fuse
