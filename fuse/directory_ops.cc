// Directory streams. The position in a stream is the volume's cookie, so a stream needs no state here.
#include <algorithm>
#include <string>
#include <vector>

#include "fuse/attributes.h"
#include "fuse/daemon.h"
#include "fuse/errno_table.h"
#include "fuse/operations.h"

namespace elidefs::fuse {
namespace {

constexpr size_t kMaxListingBytes = 1U << 20U;

struct ListedName {
  std::string name;
  InodeId inode;
  uint32_t mode_type;
  uint64_t next_cookie;
  bool IsDot() const { return name == "." || name == ".."; }
};

// Entries from `cookie` on whose encoded forms fit into `size` bytes. They are collected first, since the volume may
// hold the directory's lock during the visit and looking up an inode takes locks of its own.
absl::StatusOr<std::vector<ListedName>> List(fuse_req_t request, fuse_ino_t directory, uint64_t cookie, size_t size,
                                             bool plus) {
  std::vector<ListedName> names;
  size_t used = 0;
  const absl::Status status =
      DaemonOf(request).volume().ReadDirectory(InodeOf(directory), cookie, [&](const DirectoryItem& item) {
        std::string name(item.name);
        used += plus ? fuse_add_direntry_plus(request, nullptr, 0, name.c_str(), nullptr, 0)
                     : fuse_add_direntry(request, nullptr, 0, name.c_str(), nullptr, 0);
        if (used > size) return false;
        names.push_back({std::move(name), item.inode, item.mode_type, item.next_cookie});
        return true;
      });
  if (!status.ok()) return status;
  return names;
}

void OpenDirectory(fuse_req_t request, fuse_ino_t /*node*/, fuse_file_info* file_info) {
  file_info->fh = 0;
  fuse_reply_open(request, file_info);
}

void ReleaseDirectory(fuse_req_t request, fuse_ino_t /*node*/, fuse_file_info* /*file_info*/) {
  fuse_reply_err(request, 0);
}

void ReadDirectory(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* /*file_info*/) {
  size = std::min(size, kMaxListingBytes);
  const absl::StatusOr<std::vector<ListedName>> names = List(request, node, static_cast<uint64_t>(offset), size, false);
  if (!names.ok()) return ReplyStatus(request, names.status());
  std::vector<char> buffer(size);
  size_t used = 0;
  for (const ListedName& item : *names) {
    struct stat attributes = {};
    attributes.st_ino = item.inode;
    attributes.st_mode = item.mode_type;
    used += fuse_add_direntry(request, buffer.data() + used, size - used, item.name.c_str(), &attributes,
                              static_cast<off_t>(item.next_cookie));
  }
  fuse_reply_buf(request, buffer.data(), used);
}

// What the listing says about one name. Node 0 tells the kernel that attributes are not given, not that the name is
// missing: it looks the name up when somebody wants it and gets the error then.
fuse_entry_param Describe(Volume& volume, const ListedName& item) {
  fuse_entry_param param = {};
  if (!item.IsDot()) {
    if (const absl::StatusOr<Entry> entry = volume.LookupInode(item.inode); entry.ok()) return MakeEntryParam(*entry);
  }
  param.attr.st_ino = item.inode;
  param.attr.st_mode = item.mode_type;
  return param;
}

void ReadDirectoryPlus(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* /*file_info*/) {
  size = std::min(size, kMaxListingBytes);
  const absl::StatusOr<std::vector<ListedName>> names = List(request, node, static_cast<uint64_t>(offset), size, true);
  if (!names.ok()) return ReplyStatus(request, names.status());
  Volume& volume = DaemonOf(request).volume();
  std::vector<char> buffer(size);
  std::vector<InodeId> looked_up;
  size_t used = 0;
  for (const ListedName& item : *names) {
    const fuse_entry_param param = Describe(volume, item);
    if (param.ino != 0) looked_up.push_back(item.inode);
    used += fuse_add_direntry_plus(request, buffer.data() + used, size - used, item.name.c_str(), &param,
                                   static_cast<off_t>(item.next_cookie));
  }
  if (fuse_reply_buf(request, buffer.data(), used) == 0) return;
  for (const InodeId inode : looked_up) volume.Forget(inode, 1);  // the kernel did not take them
}

void SyncDirectory(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info* /*file_info*/) {
  Daemon& daemon = DaemonOf(request);
  daemon.volume().SyncDirectoryAsync(InodeOf(node), data_only != 0,
                                     [reply = PendingReply(&daemon, request, nullptr)](int error) mutable {
                                       PendingReply(std::move(reply)).Error(error);
                                     });
}

}  // namespace

void AddDirectoryOperations(fuse_lowlevel_ops* operations) {
  operations->opendir = OpenDirectory;
  operations->releasedir = ReleaseDirectory;
  operations->readdir = ReadDirectory;
  operations->readdirplus = ReadDirectoryPlus;
  operations->fsyncdir = SyncDirectory;
}

}  // namespace elidefs::fuse
