// The command line of the `elidefs` program: parsing and help texts. No side effects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "fuse/mount_options.h"

namespace elidefs::fuse {

struct Command {
  enum class Kind { kMount, kStat, kUnmount, kFlush, kVersion, kHelp };
  Kind kind = Kind::kHelp;
  std::string source;       // mount
  std::string mountpoint;   // mount, stat, unmount, flush
  MountOptions options;     // mount
  bool foreground = false;  // mount
  bool fake = false;        // mount -t elidefs -f: check the arguments only
  bool json = false;        // stat
  std::string help_topic;   // help; empty for the overview
};

// `arguments[0]` is the program's name; called as mount.elidefs it takes the arguments that mount(8) gives its helpers.
// Root gets allow_other, as with every other file system. Errors are InvalidArgument: usage errors, exit status 2.
absl::StatusOr<Command> ParseCommandLine(const std::vector<std::string>& arguments, bool is_root);

// The help for a command, or the overview for an empty topic.
std::string HelpText(std::string_view topic);

}  // namespace elidefs::fuse
