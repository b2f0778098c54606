// DirtyTimes: inodes whose timestamps an overwrite changed in memory only. They enter a transaction when somebody needs
// them there: fsync, unmount, eviction. Timestamps alone never cost an fdatasync a commit.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

class DirtyTimes {
 public:
  // `update_access_times` false: noatime.
  DirtyTimes(VolumeContext* context, bool update_access_times)
      : context_(context), update_access_times_(update_access_times) {}

  // The inode was read: moves its access time to `now` if the mount, the inode and the relatime rule ask for it.
  void TouchAccessTime(const InodeRef& inode, const Timestamp& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);

  void Add(const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  // The inode's times went into a transaction with some other change.
  void Remove(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  // So many inodes at most are kept waiting: beyond it their times enter the running transaction without being asked
  // for.
  static constexpr size_t kMaxInodes = 4096;

  bool Contains(InodeNumber number) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return inodes_.contains(number);
  }
  // Writes the times of all listed inodes into the running transaction, so that one commit serves the fsyncs of all of
  // them. Blocks for journal space and inode mutexes; holds no lock at entry.
  absl::Status WriteAll();

 private:
  VolumeContext* const context_;
  const bool update_access_times_;
  Mutex mutex_;  // leaf
  bool write_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<InodeNumber, InodeRef> inodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace elidefs::core
