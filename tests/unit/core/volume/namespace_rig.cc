#include "tests/unit/core/volume/namespace_rig.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::test_support {
namespace {

std::string Line(const std::string& path, uint32_t mode, uint64_t links, uint32_t uid, uint32_t gid,
                 uint64_t size_bytes, const std::string& target) {
  const char type = S_ISDIR(mode)    ? 'd'
                    : S_ISLNK(mode)  ? 'l'
                    : S_ISCHR(mode)  ? 'c'
                    : S_ISBLK(mode)  ? 'b'
                    : S_ISFIFO(mode) ? 'p'
                    : S_ISSOCK(mode) ? 's'
                                     : 'f';
  char octal[16];
  snprintf(octal, sizeof(octal), "%o", mode & 07777U);
  const std::string size = type == 'd' ? "-" : std::to_string(size_bytes);
  return absl::StrCat(path, "|", std::string(1, type), "|", octal, "|", links, "|", uid, "|", gid, "|", size, "|",
                      target);
}

void ListModelBelow(const std::string& path, const ModelNode& node, std::vector<std::string>* lines) {
  lines->push_back(Line(path, node.mode, node.links, node.uid, node.gid, node.size_bytes, node.target));
  for (const auto& [name, child] : node.names) ListModelBelow(absl::StrCat(path, "/", name), *child, lines);
}

void Expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

template <typename T>
T Value(absl::StatusOr<T> value, const std::string& what) {
  if (!value.ok()) throw std::runtime_error(what + ": " + std::string(value.status().message()));
  return *std::move(value);
}

void ListVolumeBelow(Volume& volume, const std::string& path, const Entry& entry, std::vector<std::string>* lines) {
  const struct stat attributes = Value(volume.GetAttributes(entry.inode), path);
  std::string target;
  if (S_ISLNK(attributes.st_mode)) target = Value(volume.ReadLink(entry.inode), path);
  lines->push_back(Line(path, attributes.st_mode, attributes.st_nlink, attributes.st_uid, attributes.st_gid,
                        static_cast<uint64_t>(attributes.st_size), target));
  if (!S_ISDIR(attributes.st_mode)) return;
  std::vector<std::string> names;
  const absl::Status read = volume.ReadDirectory(entry.inode, 0, [&](const DirectoryItem& item) {
    // The visitor may call the volume, also about this directory.
    const Entry found = Value(volume.Lookup(entry.inode, item.name), path);
    Expect(found.inode == item.inode, path + ": ReadDirectory and Lookup differ");
    Expect(item.mode_type == 0 || item.mode_type == (found.attributes.st_mode & S_IFMT), path + ": wrong type");
    volume.Forget(found.inode, 1);
    if (item.name != "." && item.name != "..") names.emplace_back(item.name);
    return true;
  });
  Expect(read.ok(), path + ": " + std::string(read.message()));
  for (const std::string& name : names) {
    if (path.empty() && name == "lost+found") continue;
    const Entry child = Value(volume.Lookup(entry.inode, name), path);
    ListVolumeBelow(volume, absl::StrCat(path, "/", name), child, lines);
    volume.Forget(child.inode, 1);
  }
}

}  // namespace

MountedImage::MountedImage(std::vector<uint8_t> image, size_t inode_cache_limit, bool read_only) {
  blockio::MemoryDeviceOptions device_options;
  device_options.size_bytes = image.size();
  std::unique_ptr<blockio::MemoryDevice> device = blockio::MemoryDevice::FromBytes(std::move(image), device_options);
  device_ = device.get();
  VolumeOptions options;
  options.read_only = read_only;
  core::VolumeInternals internals;
  internals.inode_cache_limit = inode_cache_limit;
  volume_ = Value(core::OpenVolumeWithInternals(std::move(device), options, internals), "open");
}

std::vector<uint8_t> MountedImage::Unmount() {
  const absl::Status status = volume_->Close();
  Expect(status.ok(), "close: " + std::string(status.message()));
  std::vector<uint8_t> bytes = device_->bytes();
  volume_.reset();
  return bytes;
}

std::vector<std::string> ListModel(const ModelNode& root) {
  std::vector<std::string> lines;
  ListModelBelow("", root, &lines);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> ListVolume(Volume& volume) {
  std::vector<std::string> lines;
  const Entry root = Value(volume.LookupPath("/"), "root");
  ListVolumeBelow(volume, "", root, &lines);
  volume.Forget(root.inode, 1);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> ListByKernel(const std::vector<uint8_t>& image) {
  const TempFile file(image);
  const TempDirectory mount_point;
  MustRun("mount -o loop,ro " + file.path() + " " + mount_point.path());
  const CommandResult found = RunCommand("find " + mount_point.path() + " -path " + mount_point.path() +
                                         "/lost+found -prune -o -printf '/%P|%y|%m|%n|%U|%G|%s|%l\\n'");
  MustRun("umount " + mount_point.path());
  Expect(found.exit_code == 0, "find: " + found.output);
  std::vector<std::string> lines;
  std::istringstream input(found.output);
  for (std::string line; std::getline(input, line);) {
    if (absl::StartsWith(line, "/|")) line.erase(0, 1);
    // The size of a directory is the format's affair.
    const size_t type = line.find('|') + 1;
    if (line[type] == 'd') {
      const size_t end = line.rfind('|');
      const size_t start = line.rfind('|', end - 1);
      line.replace(start, end - start, "|-");
    }
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string Complaints(const std::vector<uint8_t>& image) {
  const TempFile file(image);
  const CommandResult check = RunCommand("e2fsck -fn " + file.path());
  std::string complaints = check.exit_code == 0 ? "" : absl::StrCat("exit code ", check.exit_code, "\n");
  std::istringstream input(check.output);
  for (std::string line; std::getline(input, line);) {
    const bool expected = line.empty() || absl::StartsWith(line, "e2fsck ") || absl::StartsWith(line, "Pass ") ||
                          absl::StrContains(line, "non-contiguous)");
    if (!expected) absl::StrAppend(&complaints, line, "\n");
  }
  return complaints;
}

}  // namespace elidefs::test_support
