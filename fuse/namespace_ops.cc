// Names: lookup and forget, creation and removal, links, renames.
#include <cerrno>
#include <cstring>

#include "fuse/attributes.h"
#include "fuse/daemon.h"
#include "fuse/errno_table.h"
#include "fuse/operations.h"

namespace elidefs::fuse {
namespace {

Credentials CallerOf(fuse_req_t request) {
  const fuse_ctx* context = fuse_req_ctx(request);
  return {context->uid, context->gid};
}

void Lookup(fuse_req_t request, fuse_ino_t directory, const char* name) {
  Volume& volume = DaemonOf(request).volume();
  // An NFS server resolves a file handle by looking up "." in the inode, which need not be a directory.
  const absl::StatusOr<Entry> entry =
      strcmp(name, ".") == 0 ? volume.LookupInode(InodeOf(directory)) : volume.Lookup(InodeOf(directory), name);
  if (!entry.ok() && ReplyErrno(entry.status()) == ENOENT && strcmp(name, ".") != 0) {
    fuse_entry_param missing = {};  // node 0: the kernel remembers that there is no such name
    missing.entry_timeout = kCacheSeconds;
    fuse_reply_entry(request, &missing);
    return;
  }
  ReplyEntry(request, entry);
}

void Forget(fuse_req_t request, fuse_ino_t node, uint64_t lookups) {
  if (node != FUSE_ROOT_ID) DaemonOf(request).volume().Forget(InodeOf(node), lookups);
  fuse_reply_none(request);
}

void ForgetMulti(fuse_req_t request, size_t count, fuse_forget_data* forgets) {
  Volume& volume = DaemonOf(request).volume();
  for (size_t i = 0; i < count; ++i) {
    if (forgets[i].ino != FUSE_ROOT_ID) volume.Forget(InodeOf(forgets[i].ino), forgets[i].nlookup);
  }
  fuse_reply_none(request);
}

void ReadLink(fuse_req_t request, fuse_ino_t node) {
  const absl::StatusOr<std::string> target = DaemonOf(request).volume().ReadLink(InodeOf(node));
  if (!target.ok()) return ReplyStatus(request, target.status());
  fuse_reply_readlink(request, target->c_str());
}

void MakeNode(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, dev_t device) {
  ReplyEntry(request, DaemonOf(request).volume().MakeNode(InodeOf(directory), name, mode, device, CallerOf(request)));
}

void MakeDirectory(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode) {
  ReplyEntry(request, DaemonOf(request).volume().MakeDirectory(InodeOf(directory), name, mode, CallerOf(request)));
}

void MakeSymlink(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name) {
  ReplyEntry(request, DaemonOf(request).volume().MakeSymlink(InodeOf(directory), name, target, CallerOf(request)));
}

void Link(fuse_req_t request, fuse_ino_t node, fuse_ino_t directory, const char* name) {
  ReplyEntry(request, DaemonOf(request).volume().Link(InodeOf(node), InodeOf(directory), name));
}

void Unlink(fuse_req_t request, fuse_ino_t directory, const char* name) {
  ReplyStatus(request, DaemonOf(request).volume().Unlink(InodeOf(directory), name));
}

void RemoveDirectory(fuse_req_t request, fuse_ino_t directory, const char* name) {
  ReplyStatus(request, DaemonOf(request).volume().RemoveDirectory(InodeOf(directory), name));
}

void Rename(fuse_req_t request, fuse_ino_t old_directory, const char* old_name, fuse_ino_t new_directory,
            const char* new_name, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(kRenameNoReplace)) != 0) {
    fuse_reply_err(request, EINVAL);  // exchange, whiteout
    return;
  }
  ReplyStatus(request, DaemonOf(request).volume().Rename(InodeOf(old_directory), old_name, InodeOf(new_directory),
                                                         new_name, flags));
}

}  // namespace

void AddNamespaceOperations(fuse_lowlevel_ops* operations) {
  operations->lookup = Lookup;
  operations->forget = Forget;
  operations->forget_multi = ForgetMulti;
  operations->readlink = ReadLink;
  operations->mknod = MakeNode;
  operations->mkdir = MakeDirectory;
  operations->symlink = MakeSymlink;
  operations->link = Link;
  operations->unlink = Unlink;
  operations->rmdir = RemoveDirectory;
  operations->rename = Rename;
}

}  // namespace elidefs::fuse
