// Removed names: unlink and rmdir. An inode that loses its last link goes onto the orphan list in the same transaction;
// it is deleted when its last use ends.
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/directory.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kRemovalCredits = Directory::kRemoveCredits + OrphanList::kCredits + 2;  // both inodes

// The inode behind `name` in the locked directory. A name of a free inode, or of the directory itself, is damage.
absl::StatusOr<InodeRef> FindTarget(VolumeContext& context, InodeCache& cache, Inode& directory, std::string_view name)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex) {
  Directory names(&context, &directory);
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryMatch match, names.Find(name));
  if (match.inode == 0) return ErrnoError(ENOENT, absl::StrCat("no such name in directory ", directory.number));
  if (match.inode == directory.number || match.inode == kRootInode) {
    return CorruptionError(
        absl::StrCat("a name in directory ", directory.number, " leads back to inode ", match.inode));
  }
  absl::StatusOr<InodeRef> target = cache.Get(match.inode);
  if (!target.ok() && StatusToErrno(target.status()) == ENOENT) {
    return CorruptionError(
        absl::StrCat("directory ", directory.number, " names inode ", match.inode, ", which is free"));
  }
  return target;
}

}  // namespace

absl::Status VolumeImpl::Unlink(InodeId directory, std::string_view name) {
  ELIDEFS_RETURN_IF_ERROR(CheckName(name));
  if (IsDotName(name)) return ErrnoError(EISDIR, "a directory is not unlinked");
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef parent, GetInode(directory));
  UseGuard use(inode_cache_.get());
  Inode& locked = *parent;
  MutexLock lock(locked.mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckMayRemove(locked));
  absl::StatusOr<InodeRef> found = FindTarget(context_, *inode_cache_, locked, name);
  if (!found.ok()) return ReportDamage(context_, found.status());
  const InodeRef target = *std::move(found);
  use.Hold(target);
  MutexLock target_lock(target->mutex);
  Inode& victim = *target;
  victim.mutex.AssertHeld();
  if (victim.IsDirectory()) return ErrnoError(EISDIR, absl::StrCat("inode ", victim.number, " is a directory"));
  ELIDEFS_RETURN_IF_ERROR(CheckMayChangeLinks(victim));
  if (victim.links == 0) {
    return ReportDamage(context_, CorruptionError(absl::StrCat("inode ", victim.number, " has a name but no links")));
  }
  if (victim.links == 1) ELIDEFS_RETURN_IF_ERROR(CheckMayDelete(victim, context_.geometry));

  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(kRemovalCredits));
  Directory names(&context_, &locked);
  absl::Status status = names.Remove(handle, name);
  if (!status.ok()) return ReportDamage(context_, std::move(status));
  --victim.links;
  victim.ctime = locked.mtime = locked.ctime = Now();
  if (victim.links == 0 && !context_.planted.forget_orphan) status = orphans_->Add(handle, target);
  if (status.ok()) status = WriteInode(context_, *dirty_times_, handle, victim, false);
  if (status.ok()) status = WriteInode(context_, *dirty_times_, handle, locked, true);
  return status.ok() ? status : AbandonChange(context_, std::move(status));
}

absl::Status VolumeImpl::RemoveDirectory(InodeId directory, std::string_view name) {
  ELIDEFS_RETURN_IF_ERROR(CheckName(name));
  if (name == ".") return ErrnoError(EINVAL, "a directory is not removed by the name '.'");
  if (name == "..") return ErrnoError(ENOTEMPTY, "a directory is not removed by the name '..'");
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef parent, GetInode(directory));
  UseGuard use(inode_cache_.get());
  Inode& locked = *parent;
  MutexLock lock(locked.mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckMayRemove(locked));
  absl::StatusOr<InodeRef> found = FindTarget(context_, *inode_cache_, locked, name);
  if (!found.ok()) return ReportDamage(context_, found.status());
  const InodeRef target = *std::move(found);
  use.Hold(target);
  MutexLock target_lock(target->mutex);
  Inode& victim = *target;
  victim.mutex.AssertHeld();
  if (!victim.IsDirectory()) return ErrnoError(ENOTDIR, absl::StrCat("inode ", victim.number, " is not a directory"));
  ELIDEFS_RETURN_IF_ERROR(CheckMayChangeLinks(victim));
  Directory victim_names(&context_, &victim);
  const absl::StatusOr<bool> empty = victim_names.IsEmpty();
  if (!empty.ok()) return ReportDamage(context_, empty.status());
  ELIDEFS_RETURN_IF_ERROR(CheckMayDelete(victim, context_.geometry));
  if (!*empty) return ErrnoError(ENOTEMPTY, absl::StrCat("directory ", victim.number, " is not empty"));

  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(kRemovalCredits));
  Directory names(&context_, &locked);
  absl::Status status = names.Remove(handle, name);
  if (!status.ok()) return ReportDamage(context_, std::move(status));
  victim.links = 0;
  RemoveSubdirectoryLink(locked);
  victim.ctime = locked.mtime = locked.ctime = Now();
  if (!context_.planted.forget_orphan) status = orphans_->Add(handle, target);
  if (status.ok()) status = WriteInode(context_, *dirty_times_, handle, victim, false);
  if (status.ok()) status = WriteInode(context_, *dirty_times_, handle, locked, true);
  return status.ok() ? status : AbandonChange(context_, std::move(status));
}

}  // namespace elidefs::core
