#include "fuse/mount_table.h"

#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

// The kernel writes blank, tab, newline and backslash as \ooo.
std::string Unescape(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size()) {
      bool octal = true;
      for (size_t digit = 1; digit <= 3; ++digit) {
        octal = octal && text[i + digit] >= '0' && text[i + digit] <= '7';
        value = value * 8 + (text[i + digit] - '0');
      }
      if (octal) {
        result += static_cast<char>(value);
        i += 3;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

bool ParseLine(absl::string_view line, MountEntry* entry) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  // id parent major:minor root mountpoint options [optional...] - type source super_options
  size_t dash = 6;
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  if (dash + 3 >= fields.size()) return false;
  const std::vector<absl::string_view> numbers = absl::StrSplit(fields[2], ':');
  unsigned major_number = 0;
  unsigned minor_number = 0;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &major_number) ||
      !absl::SimpleAtoi(numbers[1], &minor_number)) {
    return false;
  }
  entry->device = makedev(major_number, minor_number);
  entry->mountpoint = Unescape(fields[4]);
  entry->type = Unescape(fields[dash + 1]);
  entry->source = Unescape(fields[dash + 2]);
  for (absl::string_view option : absl::StrSplit(fields[dash + 3], ',')) {
    unsigned uid = 0;
    if (absl::ConsumePrefix(&option, "user_id=") && absl::SimpleAtoi(option, &uid)) entry->owner = uid;
  }
  return true;
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> resolved(realpath(path.c_str(), nullptr), &free);
  if (resolved == nullptr) {
    const int error = errno;
    return ErrnoError(error, absl::StrCat(path, ": ", strerror(error)));
  }
  return std::string(resolved.get());
}

// `path` with its directory resolved and the last component as it is.
absl::StatusOr<std::string> ResolveParent(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  const std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
  if (last.empty() || last == "." || last == "..") return RealPath(path);
  absl::StatusOr<std::string> parent = RealPath(slash == std::string::npos ? "."
                                                : slash == 0               ? "/"
                                                                           : path.substr(0, slash));
  if (!parent.ok()) return parent;
  return absl::StrCat(*parent == "/" ? "" : *parent, "/", last);
}

}  // namespace

std::vector<MountEntry> ParseMountTable(std::string_view text) {
  std::vector<MountEntry> table;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    MountEntry entry;
    if (ParseLine(line, &entry)) table.push_back(std::move(entry));
  }
  return table;
}

absl::StatusOr<std::vector<MountEntry>> ReadMountTable() {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return ErrnoError(EIO, "cannot read /proc/self/mountinfo");
  return ParseMountTable(text.str());
}

std::string MountedElsewhere(const MountEntry& unmounted) {
  // A process's own table is as good as any other of its namespace.
  std::set<std::string> namespaces_seen;
  std::error_code error;
  for (std::filesystem::directory_iterator folder("/proc", error), end; !error && folder != end;
       folder.increment(error)) {
    const std::string process = folder->path().filename().string();
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code unreadable;
    const std::string name_space = std::filesystem::read_symlink(folder->path() / "ns/mnt", unreadable).string();
    if (unreadable || !namespaces_seen.insert(name_space).second) continue;
    std::ifstream file(folder->path() / "mountinfo");
    std::stringstream text;
    text << file.rdbuf();
    for (const MountEntry& entry : ParseMountTable(text.str())) {
      if (!entry.IsElidefs() || entry.device != unmounted.device || entry.source != unmounted.source) continue;
      const std::string own = std::filesystem::read_symlink("/proc/self/ns/mnt", unreadable).string();
      return name_space == own ? entry.mountpoint
                               : absl::StrCat(entry.mountpoint, " in the mount namespace of process ", process);
    }
  }
  return "";
}

const MountEntry* FindMount(const std::vector<MountEntry>& table, std::string_view mountpoint) {
  for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {  // a later mount covers an earlier one
    if (entry->mountpoint == mountpoint) return &*entry;
  }
  return nullptr;
}

absl::StatusOr<std::string> ResolveMountPoint(const std::string& path) {
  ELIDEFS_ASSIGN_OR_RETURN(std::string candidate, ResolveParent(path));
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  if (FindMount(table, candidate) != nullptr) return candidate;
  return RealPath(path);
}

absl::StatusOr<MountEntry> FindElidefsMount(const std::string& path) {
  ELIDEFS_ASSIGN_OR_RETURN(std::string mountpoint, ResolveMountPoint(path));
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<MountEntry> table, ReadMountTable());
  const MountEntry* entry = FindMount(table, mountpoint);
  if (entry == nullptr) return ErrnoError(EINVAL, absl::StrCat(path, " is not a mount point"));
  if (!entry->IsElidefs()) {
    return ErrnoError(EINVAL, absl::StrCat(path, " is a mount of type ", entry->type, ", not of elidefs"));
  }
  return *entry;
}

}  // namespace elidefs::fuse
