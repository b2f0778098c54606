#include "fuse/attributes.h"

#include <sys/statvfs.h>

#include <cerrno>

#include "fuse/errno_table.h"
#include "fuse/operations.h"

namespace elidefs::fuse {
namespace {

constexpr unsigned kMaxNameBytes = 255;  // ext4's

void GetAttr(fuse_req_t request, fuse_ino_t node, fuse_file_info* /*file_info*/) {
  const absl::StatusOr<struct stat> attributes = DaemonOf(request).volume().GetAttributes(InodeOf(node));
  if (!attributes.ok()) return ReplyStatus(request, attributes.status());
  fuse_reply_attr(request, &*attributes, kCacheSeconds);
}

void SetAttr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int valid, fuse_file_info* /*file_info*/) {
  Daemon& daemon = DaemonOf(request);
  Volume& volume = daemon.volume();
  const AttributeChange change = MakeAttributeChange(*wanted, valid);
  const absl::StatusOr<struct stat> attributes =
      change.fields == 0 ? volume.GetAttributes(InodeOf(node)) : volume.SetAttributes(InodeOf(node), change);
  if (!attributes.ok()) {
    // With the writeback cache an fsync sends the times of writes first, and its answer is this one.
    const bool from_sync =
        daemon.writeback_cache() && change.fields == (AttributeChange::kMtime | AttributeChange::kCtime);
    const int error = ReplyErrno(attributes.status());
    fuse_reply_err(request, from_sync && error == EROFS ? EIO : error);
    return;
  }
  fuse_reply_attr(request, &*attributes, kCacheSeconds);
}

void StatFs(fuse_req_t request, fuse_ino_t /*node*/) {
  const absl::StatusOr<VolumeSpace> space = DaemonOf(request).volume().GetSpace();
  if (!space.ok()) return ReplyStatus(request, space.status());
  struct statvfs result = {};
  result.f_bsize = space->block_bytes;
  result.f_frsize = space->block_bytes;
  result.f_blocks = space->blocks;
  result.f_bfree = space->free_blocks;
  result.f_bavail = space->available_blocks;
  result.f_files = space->inodes;
  result.f_ffree = space->free_inodes;
  result.f_favail = space->free_inodes;
  result.f_fsid = space->filesystem_id;
  result.f_namemax = kMaxNameBytes;
  fuse_reply_statfs(request, &result);
}

}  // namespace

AttributeChange MakeAttributeChange(const struct stat& attributes, int valid) {
  AttributeChange change;
  const auto take = [&](int bit, AttributeChange::Field field) {
    if ((valid & bit) != 0) change.fields |= field;
  };
  take(FUSE_SET_ATTR_MODE, AttributeChange::kMode);
  take(FUSE_SET_ATTR_UID, AttributeChange::kUid);
  take(FUSE_SET_ATTR_GID, AttributeChange::kGid);
  take(FUSE_SET_ATTR_SIZE, AttributeChange::kSize);
  take(FUSE_SET_ATTR_CTIME, AttributeChange::kCtime);
  // The kernel sets ATIME together with ATIME_NOW; the value is meaningless then.
  take(FUSE_SET_ATTR_ATIME_NOW, AttributeChange::kAtimeNow);
  take(FUSE_SET_ATTR_MTIME_NOW, AttributeChange::kMtimeNow);
  if ((valid & FUSE_SET_ATTR_ATIME_NOW) == 0) take(FUSE_SET_ATTR_ATIME, AttributeChange::kAtime);
  if ((valid & FUSE_SET_ATTR_MTIME_NOW) == 0) take(FUSE_SET_ATTR_MTIME, AttributeChange::kMtime);
  change.mode = attributes.st_mode;
  change.uid = attributes.st_uid;
  change.gid = attributes.st_gid;
  change.size_bytes = static_cast<uint64_t>(attributes.st_size);
  change.atime = attributes.st_atim;
  change.mtime = attributes.st_mtim;
  change.ctime = attributes.st_ctim;
  return change;
}

fuse_entry_param MakeEntryParam(const Entry& entry) {
  fuse_entry_param param = {};
  param.ino = NodeOf(entry.inode);
  param.generation = entry.generation;
  param.attr = entry.attributes;
  param.attr_timeout = kCacheSeconds;
  param.entry_timeout = kCacheSeconds;
  return param;
}

void ReplyEntry(fuse_req_t request, const absl::StatusOr<Entry>& entry) {
  if (!entry.ok()) return ReplyStatus(request, entry.status());
  Volume& volume = DaemonOf(request).volume();
  const fuse_entry_param param = MakeEntryParam(*entry);
  if (fuse_reply_entry(request, &param) != 0) volume.Forget(entry->inode, 1);
}

void ReplyStatus(fuse_req_t request, const absl::Status& status) {
  fuse_reply_err(request, ReplyErrno(status));
}

void AddAttributeOperations(fuse_lowlevel_ops* operations) {
  operations->getattr = GetAttr;
  operations->setattr = SetAttr;
  operations->statfs = StatFs;
}

}  // namespace elidefs::fuse
