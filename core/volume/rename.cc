// Rename. Locks: rename_mutex_ for two directories, which keeps the ancestry of every directory as it is; then the
// directories, an ancestor before its descendant, otherwise in number order; then the inodes that move or go,
// directories first, then in number order. Number order alone would not do for the directories: anybody who works in an
// ancestor locks towards its descendants. What would be locked against that direction (a directory moved into itself,
// an ancestor as the victim) is found by walking ".." and refused before any lock is taken.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/directory.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs::core {
namespace {

// Up to two inodes, in the order given; one lock when they are the same. The analysis cannot follow a lock that is
// taken or not: the users state with AssertHeld what they hold.
class PairLock {
 public:
  PairLock(Inode* first, Inode* second) ABSL_NO_THREAD_SAFETY_ANALYSIS : inodes_{first, second} {
    if (inodes_[0] == inodes_[1]) inodes_[1] = nullptr;
    for (Inode* inode : inodes_) {
      if (inode != nullptr) inode->mutex.Lock();
    }
  }
  ~PairLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Inode* inode : inodes_) {
      if (inode != nullptr) inode->mutex.Unlock();
    }
  }
  PairLock(const PairLock&) = delete;
  PairLock& operator=(const PairLock&) = delete;

 private:
  std::array<Inode*, 2> inodes_;
};

class RenameMutexLock {
 public:
  RenameMutexLock(Mutex* mutex, bool wanted) ABSL_NO_THREAD_SAFETY_ANALYSIS : mutex_(wanted ? mutex : nullptr) {
    if (mutex_ != nullptr) mutex_->Lock();
  }
  ~RenameMutexLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (mutex_ != nullptr) mutex_->Unlock();
  }
  RenameMutexLock(const RenameMutexLock&) = delete;
  RenameMutexLock& operator=(const RenameMutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

bool IsDirectoryNow(Inode& inode) {
  MutexLock lock(inode.mutex);
  return inode.IsDirectory();  // a type never changes
}

bool Contains(const std::vector<InodeNumber>& numbers, InodeNumber number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

class RenameOperation {
 public:
  RenameOperation(VolumeContext* context, InodeCache* cache, OrphanList* orphans, DirtyTimes* dirty_times,
                  std::string_view old_name, std::string_view new_name, bool replace)
      : context_(*context),
        cache_(*cache),
        orphans_(*orphans),
        dirty_times_(*dirty_times),
        old_name_(old_name),
        new_name_(new_name),
        replace_(replace) {}

  // The caller holds rename_mutex_ if the directories differ. The guards outlive its locks.
  absl::Status Run(const InodeRef& old_directory, const InodeRef& new_directory, Timestamp now, UseGuard* source_use,
                   UseGuard* victim_use);

 private:
  // The numbers of the directories above `directory`, itself included.
  absl::Status WalkUp(const InodeRef& directory, std::vector<InodeNumber>* above);
  absl::StatusOr<InodeRef> Find(Inode& directory, std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
  // Sets source_ and victim_; what the names and the ancestry forbid.
  absl::Status FindBoth(Inode& old_directory, Inode& new_directory, UseGuard* source_use, UseGuard* victim_use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(old_directory.mutex, new_directory.mutex);
  absl::Status CheckSource(const Inode& new_directory, const Inode& source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(new_directory.mutex, source.mutex);
  absl::Status CheckVictim(Inode& victim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(victim.mutex);
  absl::Status Apply(Inode& old_directory, Inode& new_directory, Inode& source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(old_directory.mutex, new_directory.mutex, source.mutex);
  // Everything behind the first modification.
  absl::Status Finish(Handle& handle, Inode& old_directory, Inode& new_directory, Inode& source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(old_directory.mutex, new_directory.mutex, source.mutex);
  absl::Status DropVictimLink(Handle& handle, Inode& new_directory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(new_directory.mutex, victim_->mutex);

  VolumeContext& context_;
  InodeCache& cache_;
  OrphanList& orphans_;
  DirtyTimes& dirty_times_;
  const std::string_view old_name_;
  const std::string_view new_name_;
  const bool replace_;
  Timestamp now_;
  bool same_directory_ = false;
  std::vector<InodeNumber> above_old_;  // empty in the same directory, where no name can lead upwards
  std::vector<InodeNumber> above_new_;
  InodeRef source_;
  InodeRef victim_;  // null: the new name is free
  bool source_is_directory_ = false;
  bool victim_is_directory_ = false;
};

absl::Status RenameOperation::Run(const InodeRef& old_directory, const InodeRef& new_directory, Timestamp now,
                                  UseGuard* source_use, UseGuard* victim_use) {
  now_ = now;
  same_directory_ = old_directory == new_directory;
  bool old_first = true;
  if (!same_directory_) {
    ELIDEFS_RETURN_IF_ERROR(WalkUp(old_directory, &above_old_));
    ELIDEFS_RETURN_IF_ERROR(WalkUp(new_directory, &above_new_));
    if (Contains(above_new_, old_directory->number)) {
      old_first = true;
    } else if (Contains(above_old_, new_directory->number)) {
      old_first = false;
    } else {
      old_first = old_directory->number < new_directory->number;
    }
  }
  Inode& from = *old_directory;
  Inode& to = *new_directory;
  PairLock directories(old_first ? &from : &to, old_first ? &to : &from);
  from.mutex.AssertHeld();
  to.mutex.AssertHeld();
  ELIDEFS_RETURN_IF_ERROR(CheckMayRemove(from));
  ELIDEFS_RETURN_IF_ERROR(CheckMayAdd(to));
  ELIDEFS_RETURN_IF_ERROR(FindBoth(from, to, source_use, victim_use));
  if (source_ == victim_) return absl::OkStatus();  // two names of one inode: POSIX leaves both

  Inode& source = *source_;
  const bool source_first = source_is_directory_ != victim_is_directory_ || victim_ == nullptr
                                ? source_is_directory_ || victim_ == nullptr
                                : source.number < victim_->number;
  PairLock inodes(source_first ? &source : victim_.get(), source_first ? victim_.get() : &source);
  source.mutex.AssertHeld();
  ELIDEFS_RETURN_IF_ERROR(CheckSource(to, source));
  if (victim_ != nullptr) {
    Inode& victim = *victim_;
    victim.mutex.AssertHeld();
    ELIDEFS_RETURN_IF_ERROR(CheckMayRemove(to));
    ELIDEFS_RETURN_IF_ERROR(CheckVictim(victim));
  }
  return Apply(from, to, source);
}

absl::Status RenameOperation::WalkUp(const InodeRef& directory, std::vector<InodeNumber>* above) {
  InodeRef current = directory;
  while (true) {
    above->push_back(current->number);
    InodeNumber parent = 0;
    {
      Inode& locked = *current;
      MutexLock lock(locked.mutex);
      if (!locked.IsDirectory())
        return ErrnoError(ENOTDIR, absl::StrCat("inode ", locked.number, " is not a directory"));
      if (locked.links == 0) return ErrnoError(ENOENT, absl::StrCat("directory ", locked.number, " was removed"));
      if (locked.number == kRootInode) return absl::OkStatus();
      Directory names(&context_, &locked);
      ELIDEFS_ASSIGN_OR_RETURN(parent, names.Parent());
    }
    if (Contains(*above, parent)) {
      return CorruptionError(absl::StrCat("the way up from directory ", directory->number, " comes back to ", parent));
    }
    ELIDEFS_ASSIGN_OR_RETURN(current, cache_.Get(parent));
  }
}

absl::StatusOr<InodeRef> RenameOperation::Find(Inode& directory, std::string_view name) {
  Directory names(&context_, &directory);
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryMatch match, names.Find(name));
  if (match.inode == 0) return InodeRef();
  if (match.inode == directory.number || match.inode == kRootInode) {
    return CorruptionError(
        absl::StrCat("a name in directory ", directory.number, " leads back to inode ", match.inode));
  }
  absl::StatusOr<InodeRef> inode = cache_.Get(match.inode);
  if (!inode.ok() && StatusToErrno(inode.status()) == ENOENT) {
    return CorruptionError(
        absl::StrCat("directory ", directory.number, " names inode ", match.inode, ", which is free"));
  }
  return inode;
}

absl::Status RenameOperation::FindBoth(Inode& old_directory, Inode& new_directory, UseGuard* source_use,
                                       UseGuard* victim_use) {
  ELIDEFS_ASSIGN_OR_RETURN(source_, Find(old_directory, old_name_));
  if (source_ == nullptr) return ErrnoError(ENOENT, absl::StrCat("no such name in directory ", old_directory.number));
  source_use->Hold(source_);
  if (Contains(above_new_, source_->number)) {
    return ErrnoError(EINVAL, absl::StrCat("directory ", source_->number, " cannot move into itself"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(victim_, Find(new_directory, new_name_));
  source_is_directory_ = IsDirectoryNow(*source_);
  if (victim_ == nullptr) return absl::OkStatus();
  victim_use->Hold(victim_);
  if (!replace_) return ErrnoError(EEXIST, absl::StrCat("the name exists in directory ", new_directory.number));
  if (Contains(above_old_, victim_->number)) {
    return ErrnoError(ENOTEMPTY, absl::StrCat("directory ", victim_->number, " is not empty"));
  }
  victim_is_directory_ = IsDirectoryNow(*victim_);
  if (source_is_directory_ && !victim_is_directory_) {
    return ErrnoError(ENOTDIR, absl::StrCat("inode ", victim_->number, " is not a directory"));
  }
  if (!source_is_directory_ && victim_is_directory_) {
    return ErrnoError(EISDIR, absl::StrCat("inode ", victim_->number, " is a directory"));
  }
  return absl::OkStatus();
}

absl::Status RenameOperation::CheckSource(const Inode& new_directory, const Inode& source) {
  ELIDEFS_RETURN_IF_ERROR(CheckMayChangeLinks(source));
  const bool new_subdirectory = source_is_directory_ && !same_directory_ && !victim_is_directory_;
  return new_subdirectory ? CheckMayAddSubdirectory(context_.geometry, new_directory) : absl::OkStatus();
}

absl::Status RenameOperation::CheckVictim(Inode& victim) {
  ELIDEFS_RETURN_IF_ERROR(CheckMayChangeLinks(victim));
  if (victim.links == 1 || victim.IsDirectory()) ELIDEFS_RETURN_IF_ERROR(CheckMayDelete(victim, context_.geometry));
  if (victim.links == 0) {
    return ReportDamage(context_, CorruptionError(absl::StrCat("inode ", victim.number, " has a name but no links")));
  }
  if (!victim_is_directory_) return absl::OkStatus();
  Directory names(&context_, &victim);
  ELIDEFS_ASSIGN_OR_RETURN(const bool empty, names.IsEmpty());
  return empty ? absl::OkStatus() : ErrnoError(ENOTEMPTY, absl::StrCat("directory ", victim.number, " is not empty"));
}

absl::Status RenameOperation::Apply(Inode& old_directory, Inode& new_directory, Inode& source) {
  Directory new_names(&context_, &new_directory);
  uint32_t credits = 3 + Directory::kRemoveCredits + Directory::kRetargetCredits;  // 3: both directories, the source
  credits += victim_ != nullptr ? Directory::kRetargetCredits + OrphanList::kCredits + 1 : new_names.AddCredits();
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(credits));
  // The new name first: only it can fail for lack of room, and then nothing has happened.
  const uint8_t type = DirectoryTypeOfMode(source.mode);
  absl::Status status = victim_ != nullptr ? new_names.Retarget(handle, new_name_, source.number, type)
                                           : new_names.Add(handle, new_name_, source.number, type);
  ELIDEFS_RETURN_IF_ERROR(status);
  status = Finish(handle, old_directory, new_directory, source);
  return status.ok() ? status : AbandonChange(context_, std::move(status));
}

absl::Status RenameOperation::Finish(Handle& handle, Inode& old_directory, Inode& new_directory, Inode& source) {
  Directory old_names(&context_, &old_directory);
  ELIDEFS_RETURN_IF_ERROR(old_names.Remove(handle, old_name_));
  if (source_is_directory_ && !same_directory_) {
    Directory own_names(&context_, &source);
    ELIDEFS_RETURN_IF_ERROR(own_names.Retarget(handle, "..", new_directory.number, kTypeDirectory));
    RemoveSubdirectoryLink(old_directory);
    AddSubdirectoryLink(context_.geometry, new_directory);
  }
  if (victim_ != nullptr) {
    victim_->mutex.AssertHeld();
    ELIDEFS_RETURN_IF_ERROR(DropVictimLink(handle, new_directory));
  }
  source.ctime = now_;
  old_directory.mtime = old_directory.ctime = new_directory.mtime = new_directory.ctime = now_;
  // A moved directory's block changed as well ("..").
  ELIDEFS_RETURN_IF_ERROR(WriteInode(context_, dirty_times_, handle, source, source_is_directory_ && !same_directory_));
  ELIDEFS_RETURN_IF_ERROR(WriteInode(context_, dirty_times_, handle, new_directory, true));
  if (same_directory_) return absl::OkStatus();
  return WriteInode(context_, dirty_times_, handle, old_directory, true);
}

absl::Status RenameOperation::DropVictimLink(Handle& handle, Inode& new_directory) {
  Inode& victim = *victim_;
  victim.mutex.AssertHeld();
  if (victim_is_directory_) {
    victim.links = 0;
    RemoveSubdirectoryLink(new_directory);
  } else {
    --victim.links;
  }
  victim.ctime = now_;
  if (victim.links == 0 && !context_.planted.forget_orphan) {
    ELIDEFS_RETURN_IF_ERROR(orphans_.Add(handle, victim_));
  }
  return WriteInode(context_, dirty_times_, handle, victim, false);
}

}  // namespace

absl::Status VolumeImpl::Rename(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                                std::string_view new_name, uint32_t flags) {
  if ((flags & ~static_cast<uint32_t>(kRenameNoReplace)) != 0) {
    return ErrnoError(EINVAL, "rename knows no flag but kRenameNoReplace");
  }
  ELIDEFS_RETURN_IF_ERROR(CheckName(old_name));
  ELIDEFS_RETURN_IF_ERROR(CheckName(new_name));
  if (IsDotName(old_name) || IsDotName(new_name)) return ErrnoError(EBUSY, "'.' and '..' are not renamed");
  const bool replace = (flags & kRenameNoReplace) == 0;
  return WithSpace([&] { return RenameOnce(old_directory, old_name, new_directory, new_name, replace); });
}

absl::Status VolumeImpl::RenameOnce(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                                    std::string_view new_name, bool replace) {
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef from, GetInode(old_directory));
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef to, GetInode(new_directory));
  RenameOperation operation(&context_, inode_cache_.get(), orphans_.get(), dirty_times_.get(), old_name, new_name,
                            replace);
  UseGuard source_use(inode_cache_.get());
  UseGuard victim_use(inode_cache_.get());
  RenameMutexLock lock(&rename_mutex_, from != to);
  // Damage found before anything was modified; found later it has aborted the journal already.
  return ReportDamage(context_, operation.Run(from, to, Now(), &source_use, &victim_use));
}

}  // namespace elidefs::core
