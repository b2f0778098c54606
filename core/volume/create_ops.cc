// New names: files, devices, directories, symlinks, hard links.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/inode_allocator.h"
#include "core/directory/directory.h"
#include "core/extent/extent_tree.h"
#include "core/inode/inode_store.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs::core {
// What is to be made.
struct NewInode {
  uint32_t mode = 0;
  uint32_t major_number = 0;
  uint32_t minor_number = 0;
  std::string_view target;
  Credentials owner;

  bool IsDirectory() const { return S_ISDIR(mode); }
  bool HasLinkBlock() const { return S_ISLNK(mode) && target.size() >= kInodeBlockBytes; }
};

namespace {

constexpr uint32_t kPermissionBits = 07777;
// A symlink's block: bitmap, descriptor, the block itself and what ExtentTree wants for an insertion into an empty
// root.
constexpr uint32_t kLinkBlockCredits = 16;
constexpr uint64_t kMaxTargetBytes = 4095;  // PATH_MAX without its zero byte

// One creation. The directory is locked by the caller; the new inode is locked by Run while it is built.
class Creation {
 public:
  Creation(VolumeContext* context, InodeCache* cache, DirtyTimes* dirty_times, Timestamp now)
      : context_(*context), cache_(cache), dirty_times_(*dirty_times), now_(now) {}

  // `use` holds the new inode from the moment others can see it.
  absl::StatusOr<InodeRef> Run(Inode& directory, std::string_view name, const NewInode& wanted, UseGuard* use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);

 private:
  absl::Status Check(Inode& directory, std::string_view name, const NewInode& wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
  void SetFields(const Inode& directory, const NewInode& wanted, Inode& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex, inode.mutex);
  // The name, the first block, the inodes. On failure everything is undone or the journal aborted.
  absl::Status Build(Handle& handle, Inode& directory, std::string_view name, const NewInode& wanted, Inode& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex, inode.mutex);
  absl::Status AddFirstBlock(Handle& handle, InodeNumber parent, const NewInode& wanted, Inode& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  absl::Status AddLinkBlock(Handle& handle, std::string_view target, Inode& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  // Frees the new inode again and returns `reason`.
  absl::Status UndoAllocation(Handle& handle, Inode& inode, absl::Status reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

  VolumeContext& context_;
  InodeCache* const cache_;
  DirtyTimes& dirty_times_;
  const Timestamp now_;
};

absl::Status Creation::Check(Inode& directory, std::string_view name, const NewInode& wanted) {
  ELIDEFS_RETURN_IF_ERROR(CheckMayAdd(directory));
  Directory names(&context_, &directory);
  const absl::StatusOr<DirectoryMatch> match = names.Find(name);
  if (!match.ok()) return ReportDamage(context_, match.status());
  if (match->inode != 0) return ErrnoError(EEXIST, absl::StrCat("the name exists in directory ", directory.number));
  if (wanted.IsDirectory()) return CheckMayAddSubdirectory(context_.geometry, directory);
  return absl::OkStatus();
}

absl::StatusOr<InodeRef> Creation::Run(Inode& directory, std::string_view name, const NewInode& wanted, UseGuard* use) {
  ELIDEFS_RETURN_IF_ERROR(Check(directory, name, wanted));
  Directory names(&context_, &directory);
  uint32_t credits = InodeAllocator::kCredits + names.AddCredits() + 2;  // both inodes
  if (wanted.IsDirectory()) credits += Directory::kInitializeCredits;
  if (wanted.HasLinkBlock()) credits += kLinkBlockCredits;
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(credits));

  bool slot_uninitialized = false;
  const absl::StatusOr<InodeNumber> number =
      context_.inodes->Allocate(handle, directory.number, wanted.IsDirectory(), &slot_uninitialized);
  if (!number.ok()) return ReportDamage(context_, number.status());
  absl::StatusOr<InodeRef> created = context_.inode_store->Create(*number, slot_uninitialized);
  if (!created.ok()) {
    absl::Status undo = context_.inodes->Free(handle, *number, wanted.IsDirectory());
    if (!undo.ok()) return AbandonChange(context_, std::move(undo));
    return ReportDamage(context_, created.status());
  }
  const InodeRef& child = *created;
  Inode& inode = *child;
  MutexLock lock(inode.mutex);
  // In the cache before it is on disk: whoever asks for the number waits for the mutex instead of reading half an
  // inode.
  use->Hold(child);
  cache_->Insert(child);
  SetFields(directory, wanted, inode);
  if (absl::Status status = Build(handle, directory, name, wanted, inode); !status.ok()) {
    inode.links = 0;
    inode.deleted = true;
    cache_->Drop(child);
    return status;
  }
  return created;
}

void Creation::SetFields(const Inode& directory, const NewInode& wanted, Inode& inode) {
  const bool inherits_group = (directory.mode & S_ISGID) != 0;
  inode.mode = static_cast<uint16_t>(wanted.mode);
  if (inherits_group && wanted.IsDirectory()) inode.mode |= S_ISGID;
  inode.uid = wanted.owner.uid;
  inode.gid = inherits_group ? directory.gid : wanted.owner.gid;
  inode.links = wanted.IsDirectory() ? 2 : 1;
  inode.atime = inode.mtime = inode.ctime = inode.crtime = now_;
  inode.dtime.store(0, std::memory_order_relaxed);
  if (S_ISREG(wanted.mode) || wanted.IsDirectory() || wanted.HasLinkBlock()) {
    inode.flags |= kInodeExtents;
    ExtentTree::InitializeRoot(inode);
  } else if (S_ISLNK(wanted.mode)) {
    inode.block_area.fill(0);
    std::memcpy(inode.block_area.data(), wanted.target.data(), wanted.target.size());
  } else {
    EncodeDevice(inode, wanted.major_number, wanted.minor_number);
  }
  if (S_ISLNK(wanted.mode)) inode.size_bytes = inode.disk_size_bytes = wanted.target.size();
}

absl::Status Creation::Build(Handle& handle, Inode& directory, std::string_view name, const NewInode& wanted,
                             Inode& inode) {
  Directory names(&context_, &directory);
  // The name first: it needs no more than the number, and taking it back is easier than giving blocks back.
  absl::Status status = names.Add(handle, name, inode.number, DirectoryTypeOfMode(wanted.mode));
  if (!status.ok()) return UndoAllocation(handle, inode, std::move(status));
  directory.mtime = directory.ctime = now_;
  if (absl::Status block = AddFirstBlock(handle, directory.number, wanted, inode); !block.ok()) {
    absl::Status undo = names.Remove(handle, name);
    // The directory may have grown for the name.
    if (undo.ok()) undo = WriteInode(context_, dirty_times_, handle, directory, true);
    if (!undo.ok()) return AbandonChange(context_, std::move(undo));
    return UndoAllocation(handle, inode, std::move(block));
  }
  if (wanted.IsDirectory()) AddSubdirectoryLink(context_.geometry, directory);
  status = WriteInode(context_, dirty_times_, handle, inode, true);
  if (status.ok()) status = WriteInode(context_, dirty_times_, handle, directory, true);
  return status.ok() ? status : AbandonChange(context_, std::move(status));
}

absl::Status Creation::AddFirstBlock(Handle& handle, InodeNumber parent, const NewInode& wanted, Inode& inode) {
  if (wanted.IsDirectory()) {
    Directory names(&context_, &inode);
    return names.InitializeEmpty(handle, parent);
  }
  return wanted.HasLinkBlock() ? AddLinkBlock(handle, wanted.target, inode) : absl::OkStatus();
}

absl::Status Creation::AddLinkBlock(Handle& handle, std::string_view target, Inode& inode) {
  ELIDEFS_ASSIGN_OR_RETURN(const BlockNumber block, context_.blocks->AllocateMetadata(
                                                        handle, context_.blocks->GoalForInode(inode.number), false));
  absl::StatusOr<BufferRef> buffer = context_.cache->GetZeroed(block);
  absl::Status status = buffer.status();
  if (status.ok()) {
    handle.Dirty(*buffer);
    std::memcpy((*buffer)->data(), target.data(), target.size());
    ExtentTree tree(&context_, &inode);
    status = tree.Insert(handle, 0, block, 1, false, false);
  }
  if (status.ok()) return status;
  absl::Status undo = context_.blocks->Free(handle, {block, 1}, true);
  return undo.ok() ? status : AbandonChange(context_, std::move(undo));
}

absl::Status Creation::UndoAllocation(Handle& handle, Inode& inode, absl::Status reason) {
  // The slot may never have been written: leave a proper deleted inode in it, not old bytes.
  inode.links = 0;
  inode.size_bytes = inode.disk_size_bytes = 0;
  inode.dtime.store(static_cast<uint32_t>(now_.seconds), std::memory_order_relaxed);
  absl::Status undo = context_.inode_store->Write(handle, inode);
  if (undo.ok()) undo = context_.inodes->Free(handle, inode.number, inode.IsDirectory());
  return undo.ok() ? ReportDamage(context_, std::move(reason)) : AbandonChange(context_, std::move(undo));
}

}  // namespace

absl::StatusOr<Entry> VolumeImpl::Create(InodeId directory, std::string_view name, const NewInode& wanted) {
  return WithSpace([&] { return CreateOnce(directory, name, wanted); });
}

absl::StatusOr<Entry> VolumeImpl::CreateOnce(InodeId directory, std::string_view name, const NewInode& wanted) {
  ELIDEFS_RETURN_IF_ERROR(CheckName(name));
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef parent, GetInode(directory));
  UseGuard use(inode_cache_.get());
  Inode& locked = *parent;
  MutexLock lock(locked.mutex);
  Creation creation(&context_, inode_cache_.get(), dirty_times_.get(), Now());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef child, creation.Run(locked, name, wanted, &use));
  MutexLock child_lock(child->mutex);
  return MakeEntry(child);
}

absl::StatusOr<Entry> VolumeImpl::MakeNode(InodeId directory, std::string_view name, uint32_t mode,
                                           uint64_t device_number, const Credentials& owner) {
  NewInode wanted;
  wanted.mode = mode & (S_IFMT | kPermissionBits);
  wanted.owner = owner;
  switch (mode & S_IFMT) {
    case 0:  // as mknod(2)
      wanted.mode |= S_IFREG;
      break;
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
      break;
    case S_IFCHR:
    case S_IFBLK:
      wanted.major_number = major(device_number);
      wanted.minor_number = minor(device_number);
      if (wanted.major_number > 0xFFF || wanted.minor_number > 0xFFFFF) {
        return ErrnoError(EINVAL, "the device number does not fit ext4's form");
      }
      break;
    case S_IFDIR:
      return ErrnoError(EPERM, "directories are made by MakeDirectory");
    default:
      return ErrnoError(EINVAL, "not a type that MakeNode makes");
  }
  return Create(directory, name, wanted);
}

absl::StatusOr<Entry> VolumeImpl::MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                                const Credentials& owner) {
  NewInode wanted;
  wanted.mode = S_IFDIR | (mode & kPermissionBits);
  wanted.owner = owner;
  return Create(directory, name, wanted);
}

absl::StatusOr<Entry> VolumeImpl::MakeSymlink(InodeId directory, std::string_view name, std::string_view target,
                                              const Credentials& owner) {
  NewInode wanted;
  wanted.mode = S_IFLNK | 0777U;
  wanted.target = target;
  wanted.owner = owner;
  if (target.empty()) return ErrnoError(ENOENT, "a symbolic link needs a target");
  if (target.find('\0') != std::string_view::npos) return ErrnoError(EINVAL, "a target holds no zero byte");
  if (target.size() > std::min<uint64_t>(context_.geometry.block_bytes - 1, kMaxTargetBytes)) {
    return ErrnoError(ENAMETOOLONG, "the target does not fit one block");
  }
  return Create(directory, name, wanted);
}

absl::StatusOr<Entry> VolumeImpl::Link(InodeId inode, InodeId directory, std::string_view name) {
  return WithSpace([&] { return LinkOnce(inode, directory, name); });
}

absl::StatusOr<Entry> VolumeImpl::LinkOnce(InodeId inode, InodeId directory, std::string_view name) {
  ELIDEFS_RETURN_IF_ERROR(CheckName(name));
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef target, GetInode(inode));
  {
    // A type never changes. Directories are sorted out before two locks are taken: one could be the parent's parent.
    MutexLock lock(target->mutex);
    if (target->IsDirectory()) return ErrnoError(EPERM, absl::StrCat("inode ", inode, " is a directory"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef parent, GetInode(directory));
  if (parent == target) return ErrnoError(ENOTDIR, absl::StrCat("inode ", directory, " is not a directory"));
  Inode& locked = *parent;
  MutexLock lock(locked.mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckMayAdd(locked));
  Directory names(&context_, &locked);
  const absl::StatusOr<DirectoryMatch> match = names.Find(name);
  if (!match.ok()) return ReportDamage(context_, match.status());
  if (match->inode != 0) return ErrnoError(EEXIST, absl::StrCat("the name exists in directory ", directory));

  MutexLock target_lock(target->mutex);
  Inode& linked = *target;
  linked.mutex.AssertHeld();
  if (linked.deleted || linked.links == 0) return ErrnoError(ENOENT, absl::StrCat("inode ", inode, " was removed"));
  ELIDEFS_RETURN_IF_ERROR(CheckMayChangeLinks(linked));
  if (linked.links >= kMaxLinks) return ErrnoError(EMLINK, absl::StrCat("inode ", inode, " has too many links"));

  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(names.AddCredits() + 2));  // both inodes
  absl::Status status = names.Add(handle, name, linked.number, DirectoryTypeOfMode(linked.mode));
  if (!status.ok()) return ReportDamage(context_, std::move(status));
  const Timestamp now = Now();
  ++linked.links;
  linked.ctime = locked.mtime = locked.ctime = now;
  status = WriteInode(context_, *dirty_times_, handle, linked, false);
  if (status.ok()) status = WriteInode(context_, *dirty_times_, handle, locked, true);
  if (!status.ok()) return AbandonChange(context_, std::move(status));
  return MakeEntry(target);
}

}  // namespace elidefs::core
