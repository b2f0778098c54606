// SetAttributes: mode, owner, times; the size is truncate.cc's.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/inode/inode_store.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kPermissionBits = 07777;
constexpr uint32_t kExplicitTimes = AttributeChange::kAtime | AttributeChange::kMtime;
constexpr uint32_t kOwnership = AttributeChange::kMode | AttributeChange::kUid | AttributeChange::kGid;

absl::Status CheckTime(const timespec& time) {
  if (time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000) return absl::OkStatus();
  return ErrnoError(EINVAL, "nanoseconds beyond one second");
}

absl::Status CheckTimes(const AttributeChange& change) {
  if ((change.fields & AttributeChange::kAtime) != 0) ELIDEFS_RETURN_IF_ERROR(CheckTime(change.atime));
  if ((change.fields & AttributeChange::kMtime) != 0) ELIDEFS_RETURN_IF_ERROR(CheckTime(change.mtime));
  if ((change.fields & AttributeChange::kCtime) != 0) ELIDEFS_RETURN_IF_ERROR(CheckTime(change.ctime));
  return absl::OkStatus();
}

absl::Status CheckFlags(const Inode& inode, uint32_t fields) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  if ((inode.flags & kInodeImmutable) != 0) {
    return ErrnoError(EPERM, absl::StrCat("inode ", inode.number, " is immutable"));
  }
  // A kernel that caches writes sends the times of an append-only file's own writes as mtime and ctime together; no
  // system call of a user sets ctime.
  const bool from_writeback = (fields & AttributeChange::kCtime) != 0 && (fields & kOwnership) == 0;
  const bool refused =
      (fields & (kOwnership | AttributeChange::kSize)) != 0 || ((fields & kExplicitTimes) != 0 && !from_writeback);
  if ((inode.flags & kInodeAppend) != 0 && refused) {
    return ErrnoError(EPERM, absl::StrCat("inode ", inode.number, " is append-only"));
  }
  return absl::OkStatus();
}

// To what the inode's timestamps can hold: 34 bits of seconds with the extra fields, 32 signed bits without.
Timestamp Encodable(const Inode& inode, int64_t seconds, uint32_t nanoseconds)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  constexpr int64_t kFirstSecond = -(int64_t{1} << 31);
  constexpr int64_t kLastShortSecond = (int64_t{1} << 31) - 1;
  constexpr int64_t kLastSecond = kLastShortSecond + (int64_t{3} << 32);
  constexpr size_t kExtraEnd = offsetof(RawInode, i_atime_extra) + sizeof(Le32) - kGoodOldInodeBytes;
  const bool extra = inode.extra_bytes >= kExtraEnd;
  const int64_t last = extra ? kLastSecond : kLastShortSecond;
  Timestamp time;
  time.seconds = std::clamp(seconds, kFirstSecond, last);
  time.nanoseconds = extra && time.seconds == seconds ? nanoseconds : 0;
  return time;
}

void ApplyOwnership(const AttributeChange& change, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  if ((change.fields & AttributeChange::kUid) != 0) inode.uid = change.uid;
  if ((change.fields & AttributeChange::kGid) != 0) inode.gid = change.gid;
  if ((change.fields & AttributeChange::kMode) != 0) {
    inode.mode = static_cast<uint16_t>((inode.mode & S_IFMT) | (change.mode & kPermissionBits));
  } else if ((change.fields & (AttributeChange::kUid | AttributeChange::kGid)) != 0 && inode.IsRegular() &&
             (inode.mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0) {
    // chown(2): an executable loses its privileges. setgid without group execution means mandatory locking and stays.
    inode.mode &= static_cast<uint16_t>(~S_ISUID);
    if ((inode.mode & S_IXGRP) != 0) inode.mode &= static_cast<uint16_t>(~S_ISGID);
  }
}

void ApplyTimes(const AttributeChange& change, const Timestamp& now, Inode& inode)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  const auto given = [&inode](const timespec& time) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // runs under the caller's lock
    return Encodable(inode, time.tv_sec, static_cast<uint32_t>(time.tv_nsec));
  };
  const Timestamp current = Encodable(inode, now.seconds, now.nanoseconds);
  if ((change.fields & AttributeChange::kAtimeNow) != 0) {
    inode.atime = current;
  } else if ((change.fields & AttributeChange::kAtime) != 0) {
    inode.atime = given(change.atime);
  }
  if ((change.fields & AttributeChange::kMtimeNow) != 0) {
    inode.mtime = current;
  } else if ((change.fields & AttributeChange::kMtime) != 0) {
    inode.mtime = given(change.mtime);
  }
  inode.ctime = (change.fields & AttributeChange::kCtime) != 0 ? given(change.ctime) : current;
}

}  // namespace

absl::StatusOr<struct stat> VolumeImpl::SetAttributes(InodeId inode, const AttributeChange& change) {
  if (change.fields == 0) return GetAttributes(inode);
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_RETURN_IF_ERROR(CheckTimes(change));
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef found, GetInode(inode));
  Inode& locked = *found;
  if ((change.fields & AttributeChange::kSize) != 0) {
    {
      MutexLock lock(locked.mutex);
      ELIDEFS_RETURN_IF_ERROR(CheckAlive(locked));
      ELIDEFS_RETURN_IF_ERROR(CheckFlags(locked, change.fields));
      if (locked.IsDirectory()) return ErrnoError(EISDIR, absl::StrCat("inode ", inode, " is a directory"));
      if (!locked.IsRegular()) return ErrnoError(EINVAL, absl::StrCat("inode ", inode, " is not a regular file"));
    }
    ELIDEFS_RETURN_IF_ERROR(SetSize(found, change.size_bytes));
    if (change.fields == AttributeChange::kSize) return GetAttributes(inode);
  }

  MutexLock lock(locked.mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckAlive(locked));
  ELIDEFS_RETURN_IF_ERROR(CheckFlags(locked, change.fields));
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(1));
  ApplyOwnership(change, locked);
  ApplyTimes(change, Now(), locked);
  absl::Status status = WriteInode(context_, *dirty_times_, handle, locked, false);
  if (!status.ok()) return AbandonChange(context_, std::move(status));
  struct stat attributes;
  FillStat(locked, context_.geometry.block_bytes, &attributes);
  return attributes;
}

}  // namespace elidefs::core
