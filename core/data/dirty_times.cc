#include "core/data/dirty_times.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/inode/inode_store.h"

namespace elidefs::core {
namespace {

bool IsBefore(const Timestamp& left, const Timestamp& right) {
  return left.seconds != right.seconds ? left.seconds < right.seconds : left.nanoseconds < right.nanoseconds;
}

// The relatime rule: the access time moves when it is not newer than the last change, or a day old.
bool AccessTimeIsDue(const Inode& inode, const Timestamp& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  constexpr int64_t kDaySeconds = 24 * 60 * 60;
  return !IsBefore(inode.mtime, inode.atime) || !IsBefore(inode.ctime, inode.atime) ||
         now.seconds - inode.atime.seconds >= kDaySeconds;
}

}  // namespace

void DirtyTimes::TouchAccessTime(const InodeRef& inode, const Timestamp& now) {
  const Inode& locked = *inode;
  locked.mutex.AssertHeld();
  if (!update_access_times_ || !context_->writable() || (locked.flags & kInodeNoAtime) != 0) return;
  if (!AccessTimeIsDue(locked, now)) return;
  inode->atime = now;
  Add(inode);
}

void DirtyTimes::Add(const InodeRef& inode) {
  inode->times_dirty = true;
  MutexLock lock(mutex_);
  inodes_.try_emplace(inode->number, inode).first->second = inode;
  if (inodes_.size() < kMaxInodes || write_scheduled_ || context_->workers == nullptr) return;
  write_scheduled_ = true;
  context_->workers->Schedule([this] {
    if (const absl::Status status = WriteAll(); !status.ok()) context_->logger.Error(std::string(status.message()));
    MutexLock relock(mutex_);
    write_scheduled_ = false;
  });
}

void DirtyTimes::Remove(const Inode& inode) {
  if (!inode.times_dirty) return;
  InodeRef listed;  // goes away after the lock
  MutexLock lock(mutex_);
  const auto found = inodes_.find(inode.number);
  if (found == inodes_.end() || found->second.get() != &inode) return;
  listed = found->second;
  inodes_.erase(found);
  listed->mutex.AssertHeld();  // the same object as `inode`
  listed->times_dirty = false;
}

absl::Status DirtyTimes::WriteAll() {
  std::vector<InodeRef> inodes;
  {
    MutexLock lock(mutex_);
    inodes.reserve(inodes_.size());
    for (const auto& [number, inode] : inodes_) inodes.push_back(inode);
  }
  // In the order of the inode table.
  std::sort(inodes.begin(), inodes.end(), [](const InodeRef& a, const InodeRef& b) { return a->number < b->number; });
  // One short handle each, because an inode's mutex comes before the handle; they meet in the running transaction.
  for (const InodeRef& inode : inodes) {
    MutexLock inode_lock(inode->mutex);
    if (!inode->times_dirty) continue;
    if (!inode->deleted) {
      ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_->journal->Start(1));
      ELIDEFS_RETURN_IF_ERROR(context_->inode_store->Write(handle, *inode));
      inode->JoinTransaction(handle.transaction(), false);
    }
    Remove(*inode);
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
