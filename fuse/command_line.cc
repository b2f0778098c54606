#include "fuse/command_line.h"

#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace elidefs::fuse {
namespace {

constexpr char kOverview[] =
    R"(usage: elidefs COMMAND ...

  mount [-f] [-d] [-o OPTIONS] SOURCE MOUNTPOINT   mount an ext4 volume
  unmount MOUNTPOINT                               unmount and wait until the volume is clean
  flush MOUNTPOINT                                 make everything durable that was written
  stat MOUNTPOINT [--json]                         show what the mount did about durability
  help [COMMAND]                                   show this text or the help for a command
  --version                                        show the version
)";

constexpr char kMountHelp[] =
    R"(usage: elidefs mount [-f] [-d] [-o OPTIONS] SOURCE MOUNTPOINT

Mounts the ext4 volume in SOURCE, an image file or a block device. Returns when the mount can be used.

  -f   stay in the foreground and log to the terminal; Ctrl-C unmounts, unless the mount is busy
  -d   as -f, and show every request

Options, separated by commas:
  ro, rw               read only; read and write (default)
  writeback_cache      let the kernel collect small writes. A sync can then be elided only for data that
                       the kernel has passed on before, for instance after sync_file_range
  allow_other          let all users use the mount (default for root; noallow_other turns it off)
  commit=SECONDS       age at which metadata changes are committed without being asked (default 30)
  noatime, relatime    never update access times; update them as the kernel's relatime does (default)
  errors=remount-ro|continue|panic   what to do when the volume is found damaged (default remount-ro)
  max_threads=N        threads that take requests from the kernel (default 4)
  queues=N             hardware queues (default: one per CPU, at most 4)
  write_behind_mib=N   memory for data that was accepted and not yet written (default 32);
                       with writeback_cache the kernel holds that data
  suid, dev, noexec    as with mount(8); nosuid and nodev are the default
  debug                log more

Exit status: 0 mounted, 1 not mounted, 2 wrong usage.
)";

constexpr char kStatHelp[] =
    R"(usage: elidefs stat MOUNTPOINT [--json]

Shows counters of syncs, device flushes, journal commits and queues of a mounted volume.
)";

constexpr char kUnmountHelp[] =
    R"(usage: elidefs unmount MOUNTPOINT

Unmounts and waits until everything is durable, the volume is clean and its daemon has exited.
)";

constexpr char kFlushHelp[] =
    R"(usage: elidefs flush MOUNTPOINT

Makes everything durable that has reached the daemon. The kernel does not forward sync(2) to FUSE mounts; this does its work.
)";

struct CommandName {
  std::string_view name;
  Command::Kind kind;
  const char* help;
};

constexpr CommandName kCommands[] = {
    {"mount", Command::Kind::kMount, kMountHelp},       {"stat", Command::Kind::kStat, kStatHelp},
    {"unmount", Command::Kind::kUnmount, kUnmountHelp}, {"umount", Command::Kind::kUnmount, kUnmountHelp},
    {"flush", Command::Kind::kFlush, kFlushHelp},       {"help", Command::Kind::kHelp, kOverview},
};

const CommandName* FindCommand(std::string_view name) {
  for (const CommandName& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

template <typename... Parts>
absl::Status Usage(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Reads the arguments after the command's name.
class ArgumentReader {
 public:
  ArgumentReader(const std::vector<std::string>& arguments, size_t first, bool mount_helper)
      : arguments_(arguments), next_(first), mount_helper_(mount_helper) {}

  absl::Status Read(std::string_view name, Command* command) {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_++];
      if (only_positional_ || argument.size() < 2 || argument[0] != '-') {
        positional_.push_back(argument);
      } else if (argument == "--") {
        only_positional_ = true;
      } else if (argument == "-h" || argument == "--help") {
        command->help_topic = std::string(name);
        command->kind = Command::Kind::kHelp;
        return absl::OkStatus();
      } else if (absl::Status status = ReadOption(name, argument, command); !status.ok()) {
        return status;
      }
    }
    return Assign(name, command);
  }

 private:
  absl::Status ReadOption(std::string_view name, const std::string& argument, Command* command) {
    if (command->kind == Command::Kind::kStat && argument == "--json") {
      command->json = true;
      return absl::OkStatus();
    }
    if (command->kind == Command::Kind::kMount) {
      if (argument[1] == 'o') return ReadMountOptions(argument, command);
      if (mount_helper_) return ReadHelperFlags(argument, command);
      if (argument == "-f" || argument == "-d" || argument == "-fd" || argument == "-df") {
        command->foreground = true;
        if (argument != "-f") command->options.debug = true;
        return absl::OkStatus();
      }
    }
    return Usage("unknown option '", argument, "' for '", std::string(name), "'");
  }

  absl::Status ReadMountOptions(const std::string& argument, Command* command) {
    if (argument.size() > 2) return ApplyMountOptions(std::string_view(argument).substr(2), &command->options);
    if (next_ >= arguments_.size()) return Usage("option '-o' needs a value");
    return ApplyMountOptions(arguments_[next_++], &command->options);
  }

  // mount(8) passes -s (sloppy), -f (fake), -n (no mtab), -v (verbose), -N NAMESPACE, -t TYPE to its helpers.
  absl::Status ReadHelperFlags(const std::string& argument, Command* command) {
    for (const char flag : std::string_view(argument).substr(1)) {
      if (flag == 'f') {
        command->fake = true;
      } else if (flag == 't' || flag == 'N') {
        if (next_ >= arguments_.size()) return Usage("option '", argument, "' needs a value");
        ++next_;
      } else if (flag != 's' && flag != 'n' && flag != 'v' && flag != 'w' && flag != 'r') {
        return Usage("unknown option '", argument, "'");
      }
      if (flag == 'r') command->options.read_only = true;
    }
    return absl::OkStatus();
  }

  absl::Status Assign(std::string_view name, Command* command) {
    if (command->kind == Command::Kind::kHelp) {
      if (positional_.size() > 1) return Usage("'help' takes one command");
      if (!positional_.empty()) command->help_topic = positional_[0];
      if (!command->help_topic.empty() && FindCommand(command->help_topic) == nullptr) {
        return Usage("unknown command '", command->help_topic, "'");
      }
      return absl::OkStatus();
    }
    const size_t wanted = command->kind == Command::Kind::kMount ? 2 : 1;
    if (positional_.size() != wanted) {
      return Usage("'", std::string(name), "' wants ", wanted == 2 ? "a SOURCE and a MOUNTPOINT" : "one MOUNTPOINT",
                   positional_.size() > wanted ? absl::StrCat("; '", positional_[wanted], "' is too much") : "");
    }
    if (wanted == 2) command->source = positional_[0];
    command->mountpoint = positional_[wanted - 1];
    if (command->mountpoint.empty()) return Usage("the mount point's name is empty");
    return absl::OkStatus();
  }

  const std::vector<std::string>& arguments_;
  size_t next_;
  const bool mount_helper_;
  bool only_positional_ = false;
  std::vector<std::string> positional_;
};

}  // namespace

absl::StatusOr<Command> ParseCommandLine(const std::vector<std::string>& arguments, bool is_root) {
  Command command;
  command.options.allow_other = is_root;
  const std::string program = arguments.empty() ? "" : arguments[0].substr(arguments[0].rfind('/') + 1);
  if (program == "mount.elidefs") {
    command.kind = Command::Kind::kMount;
    ArgumentReader reader(arguments, 1, true);
    if (absl::Status status = reader.Read("mount", &command); !status.ok()) return status;
    return command;
  }
  if (arguments.size() < 2) return Usage("no command given");
  const std::string& name = arguments[1];
  if (name == "--version" || name == "-V") {
    command.kind = Command::Kind::kVersion;
    return command;
  }
  if (name == "--help" || name == "-h") return command;
  const CommandName* known = FindCommand(name);
  if (known == nullptr) return Usage("unknown command '", name, "'");
  command.kind = known->kind;
  ArgumentReader reader(arguments, 2, false);
  if (absl::Status status = reader.Read(name, &command); !status.ok()) return status;
  return command;
}

std::string HelpText(std::string_view topic) {
  const CommandName* command = FindCommand(topic);
  return command == nullptr ? kOverview : command->help;
}

}  // namespace elidefs::fuse
