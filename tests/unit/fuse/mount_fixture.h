// Mounts a FakeVolume through the real kernel: the whole daemon, without a block layer.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace elidefs::fuse {

struct CommandResult {
  int status = -1;     // exit status, 128 + signal if killed
  std::string output;  // stdout and stderr
};

class MountTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs in a forked process, as the program would. `open_status` is the result of opening the volume.
  CommandResult Mount(const std::string& options = "rw", absl::Status open_status = absl::OkStatus(),
                      absl::Status close_status = absl::OkStatus());
  // In the foreground; returns once mounted.
  pid_t MountInForeground(const std::string& options = "rw");
  CommandResult UnmountCommand();
  CommandResult StatCommand(bool json);
  CommandResult FlushCommand();

  pid_t DaemonProcess();
  bool IsMounted() const;
  bool WaitUntilUnmounted() const;
  // What FakeVolume::Close wrote; waits up to five seconds. Empty: not closed.
  std::string ClosedReport() const;
  std::string Path(const std::string& name) const { return mountpoint_ + "/" + name; }

  std::string folder_, mountpoint_, source_, closed_path_;

 private:
  int RunMountHere(const std::string& options, bool foreground, const absl::Status& open_status,
                   const absl::Status& close_status);
};

// Waits for a child.
int ExitStatus(pid_t child);

}  // namespace elidefs::fuse
