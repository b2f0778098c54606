// The `elidefs` program.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "elidefs/block_device.h"
#include "elidefs/volume.h"
#include "fuse/client_commands.h"
#include "fuse/command_line.h"
#include "fuse/mount_command.h"

namespace {

constexpr int kUsageError = 2;

absl::StatusOr<std::unique_ptr<elidefs::Volume>> OpenVolume(const std::string& source,
                                                            const elidefs::VolumeOptions& options) {
  elidefs::FileDeviceOptions device_options;
  device_options.read_only = options.read_only;
  absl::StatusOr<std::unique_ptr<elidefs::BlockDevice>> device = elidefs::OpenFileDevice(source, device_options);
  if (!device.ok()) return std::move(device).status();
  return elidefs::Volume::Open(*std::move(device), options);
}

// Descriptors 0 to 2 may be closed; a volume or a socket must not get their numbers.
void OpenStandardDescriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

int Run(const elidefs::fuse::Command& command) {
  using Kind = elidefs::fuse::Command::Kind;
  switch (command.kind) {
    case Kind::kMount:
      return elidefs::fuse::RunMount(command, OpenVolume);
    case Kind::kStat:
      return elidefs::fuse::RunStat(command.mountpoint, command.json);
    case Kind::kUnmount:
      return elidefs::fuse::RunUnmount(command.mountpoint);
    case Kind::kFlush:
      return elidefs::fuse::RunFlush(command.mountpoint);
    case Kind::kVersion:
      printf("elidefs %s\n", ELIDEFS_VERSION);
      return 0;
    case Kind::kHelp:
      fputs(elidefs::fuse::HelpText(command.help_topic).c_str(), stdout);
      return 0;
  }
  return kUsageError;
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  const std::vector<std::string> arguments(argv, argv + argc);
  const absl::StatusOr<elidefs::fuse::Command> command = elidefs::fuse::ParseCommandLine(arguments, geteuid() == 0);
  if (!command.ok()) {
    fprintf(stderr, "elidefs: %s\nTry 'elidefs help'.\n", std::string(command.status().message()).c_str());
    return kUsageError;
  }
  return Run(*command);
}
