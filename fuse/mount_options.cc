#include "fuse/mount_options.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace elidefs::fuse {
namespace {

struct BooleanOption {
  std::string_view name;
  bool MountOptions::*field;
  bool value;
};

constexpr BooleanOption kBooleanOptions[] = {
    {"ro", &MountOptions::read_only, true},
    {"rw", &MountOptions::read_only, false},
    {"writeback_cache", &MountOptions::writeback_cache, true},
    {"allow_other", &MountOptions::allow_other, true},
    {"noallow_other", &MountOptions::allow_other, false},
    {"noatime", &MountOptions::update_atime, false},
    {"relatime", &MountOptions::update_atime, true},
    {"debug", &MountOptions::debug, true},
};

struct NumberOption {
  std::string_view name;
  uint32_t MountOptions::*field;
  uint32_t minimum, maximum;
};

constexpr NumberOption kNumberOptions[] = {
    {"commit", &MountOptions::commit_seconds, 1, 86400},
    {"max_threads", &MountOptions::max_threads, 1, 256},
    {"queues", &MountOptions::queues, 1, 64},
    {"write_behind_mib", &MountOptions::write_behind_mib, 1, 65536},
};

// Flags of mount(2) that libfuse passes on. `sync` and `dirsync` are missing on purpose: FUSE would accept them and not
// make namespace changes synchronous.
constexpr std::string_view kKernelFlags[] = {"dev", "nodev", "suid", "nosuid", "exec", "noexec"};

constexpr std::string_view kIgnored[] = {"defaults", "default_permissions",
                                         "nofail",   "_netdev",
                                         "auto",     "noauto",
                                         "user",     "nouser",
                                         "users",    "owner",
                                         "group",    "async"};
constexpr std::string_view kIgnoredPrefixes[] = {"x-", "X-", "user=", "uhelper=", "comment="};

template <typename Container>
bool Contains(const Container& container, std::string_view value) {
  return std::find(std::begin(container), std::end(container), value) != std::end(container);
}

bool Ignored(std::string_view option) {
  if (Contains(kIgnored, option)) return true;
  return std::any_of(std::begin(kIgnoredPrefixes), std::end(kIgnoredPrefixes),
                     [&](std::string_view prefix) { return option.substr(0, prefix.size()) == prefix; });
}

absl::Status Invalid(std::string_view option, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("mount option '", std::string(option), "': ", std::string(why)));
}

absl::Status ApplyNumber(const NumberOption& known, std::string_view option, std::string_view value,
                         MountOptions* options) {
  uint32_t number = 0;
  const bool digits = value.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || !absl::SimpleAtoi(std::string(value), &number) || number < known.minimum || number > known.maximum) {
    return Invalid(option, absl::StrCat("wants a number from ", known.minimum, " to ", known.maximum));
  }
  options->*known.field = number;
  return absl::OkStatus();
}

absl::Status ApplyErrors(std::string_view option, std::string_view value, MountOptions* options) {
  if (value == "remount-ro") {
    options->errors = ErrorPolicy::kRemountReadOnly;
  } else if (value == "continue") {
    options->errors = ErrorPolicy::kContinue;
  } else if (value == "panic") {
    options->errors = ErrorPolicy::kPanic;
  } else {
    return Invalid(option, "wants remount-ro, continue or panic");
  }
  return absl::OkStatus();
}

absl::Status ApplyWithValue(std::string_view option, std::string_view name, std::string_view value,
                            MountOptions* options) {
  for (const NumberOption& known : kNumberOptions) {
    if (known.name == name) return ApplyNumber(known, option, value, options);
  }
  if (name == "errors") return ApplyErrors(option, value, options);
  if (name == "data") {
    if (value == "ordered") return absl::OkStatus();
    return Invalid(option, "elidefs writes in data=ordered mode only");
  }
  return Invalid(option, "unknown; 'elidefs help mount' lists the options");
}

absl::Status ApplyOne(std::string_view option, MountOptions* options) {
  for (const BooleanOption& known : kBooleanOptions) {
    if (known.name != option) continue;
    options->*known.field = known.value;
    return absl::OkStatus();
  }
  if (Contains(kKernelFlags, option)) {
    options->kernel_flags.emplace_back(option);
    return absl::OkStatus();
  }
  if (Ignored(option)) return absl::OkStatus();
  if (option == "remount") return Invalid(option, "a mounted volume keeps its options; unmount it and mount it again");
  if (option == "sync" || option == "dirsync") return Invalid(option, "not supported; use O_SYNC or fsync");
  if (const size_t equals = option.find('='); equals != std::string_view::npos) {
    return ApplyWithValue(option, option.substr(0, equals), option.substr(equals + 1), options);
  }
  if (option == "errors" || option == "data" ||
      std::any_of(std::begin(kNumberOptions), std::end(kNumberOptions),
                  [&](const NumberOption& known) { return known.name == option; })) {
    return Invalid(option, "needs a value");
  }
  return Invalid(option, "unknown; 'elidefs help mount' lists the options");
}

}  // namespace

absl::Status ApplyMountOptions(std::string_view list, MountOptions* options) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view option = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (option.empty()) continue;
    if (absl::Status status = ApplyOne(option, options); !status.ok()) return status;
  }
  return absl::OkStatus();
}

VolumeOptions MakeVolumeOptions(const MountOptions& options) {
  VolumeOptions volume;
  volume.read_only = options.read_only;
  volume.errors = options.errors;
  volume.commit_interval_ms = options.commit_seconds * 1000;
  // With the writeback cache the kernel keeps the pages until it has the answer: only one that comes from the device
  // lets it record a failed write, and the daemon make it drop what was not stored.
  volume.write_behind_bytes = options.writeback_cache ? 0 : static_cast<uint64_t>(options.write_behind_mib) << 20U;
  volume.hardware_queues = options.queues;
  volume.update_atime = options.update_atime;
  return volume;
}

std::string MakeFuseOptions(const MountOptions& options, std::string_view source) {
  std::string name;
  for (const char letter : source) {
    if (letter == ',' || letter == '\\') name += '\\';
    name += letter;
  }
  std::string result = absl::StrCat("fsname=", name, ",subtype=elidefs,default_permissions");
  absl::StrAppend(&result, options.read_only ? ",ro" : ",rw");
  if (options.allow_other) absl::StrAppend(&result, ",allow_other");
  if (!options.update_atime) absl::StrAppend(&result, ",noatime");
  for (const std::string& flag : options.kernel_flags) absl::StrAppend(&result, ",", flag);
  if (options.debug) absl::StrAppend(&result, ",debug");
  return result;
}

}  // namespace elidefs::fuse
