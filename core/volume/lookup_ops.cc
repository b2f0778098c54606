// Lookup, attributes and directory reading: the operations that change nothing but access times.
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/group_table.h"
#include "core/alloc/inode_allocator.h"
#include "core/directory/directory.h"
#include "core/extent/extent_tree.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs {

absl::StatusOr<Entry> Volume::LookupPath(std::string_view path) {
  if (path.empty() || path.front() != '/') return ErrnoError(EINVAL, "a path starts with '/'");
  absl::StatusOr<Entry> entry = LookupInode(kRootInodeId);
  while (entry.ok() && !path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (name.empty()) continue;
    const InodeId directory = entry->inode;
    entry = Lookup(directory, name);
    Forget(directory, 1);
  }
  return entry;
}

namespace core {
namespace {

// One step of ReadDirectory: what is copied out under the directory's mutex, so that the visitor may call the volume.
constexpr size_t kItemsPerStep = 128;

struct CopiedItem {
  std::string name;
  InodeNumber inode;
  uint32_t mode_type;
  uint64_t next_cookie;
};

timespec ToTimespec(const Timestamp& time) {
  return {.tv_sec = static_cast<time_t>(time.seconds), .tv_nsec = static_cast<long>(time.nanoseconds)};
}

// The target of a symlink that does not fit the inode: one block.
absl::StatusOr<std::string> ReadLinkBlock(VolumeContext& context, Inode& inode)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping, LookupMapping(&context, inode, 0));
  if (mapping.is_hole() || mapping.unwritten || inode.size_bytes > context.geometry.block_bytes) {
    return CorruptionError(absl::StrCat("symlink ", inode.number, " has no block for its target"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef buffer, context.cache->Read(mapping.physical, nullptr));
  return std::string(reinterpret_cast<const char*>(buffer->data()), inode.size_bytes);
}

absl::StatusOr<std::string> LinkTarget(VolumeContext& context, Inode& inode)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  if (inode.size_bytes == 0) return CorruptionError(absl::StrCat("symlink ", inode.number, " has no target"));
  const uint64_t xattr_512 = inode.xattr_block != 0 ? context.geometry.block_bytes / 512 : 0;
  const bool in_inode = !inode.HasExtents() && inode.blocks_512 <= xattr_512;
  if (!in_inode) return ReadLinkBlock(context, inode);
  if (inode.size_bytes >= kInodeBlockBytes) {
    return CorruptionError(absl::StrCat("symlink ", inode.number, " is longer than the room in its inode"));
  }
  return std::string(reinterpret_cast<const char*>(inode.block_area.data()), inode.size_bytes);
}

}  // namespace

Timestamp VolumeImpl::Now() {
  const timespec now = TimeOfDay();
  return {.seconds = now.tv_sec, .nanoseconds = static_cast<uint32_t>(now.tv_nsec)};
}

absl::Status VolumeImpl::RequireWritable() const {
  if (context_.writable()) return absl::OkStatus();
  if (context_.read_only || context_.journal == nullptr) return ErrnoError(EROFS, "the volume is mounted read-only");
  return ErrnoError(EROFS, absl::StrCat("the volume became read-only: ", context_.journal->abort_reason().message()));
}

absl::StatusOr<InodeRef> VolumeImpl::GetInode(InodeId id) {
  if (id == 0 || id > context_.geometry.inode_count) return ErrnoError(ENOENT, absl::StrCat("no inode ", id));
  absl::StatusOr<InodeRef> inode = inode_cache_->Get(static_cast<InodeNumber>(id));
  if (!inode.ok()) return ReportDamage(context_, inode.status());
  MutexLock lock((*inode)->mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckAlive(**inode));
  return inode;
}

void VolumeImpl::FillStat(const Inode& inode, uint32_t block_bytes, struct stat* out) {
  constexpr uint32_t kMinimumIoBytes = 4096;
  *out = {};
  out->st_ino = inode.number;
  out->st_mode = inode.mode;
  out->st_nlink = inode.links;
  out->st_uid = inode.uid;
  out->st_gid = inode.gid;
  if (S_ISCHR(inode.mode) || S_ISBLK(inode.mode)) out->st_rdev = DecodeDevice(inode);
  out->st_size = static_cast<off_t>(inode.size_bytes);
  out->st_blksize = std::max(block_bytes, kMinimumIoBytes);
  out->st_blocks = static_cast<blkcnt_t>(inode.blocks_512 + inode.pending_blocks * (block_bytes / 512));
  out->st_atim = ToTimespec(inode.atime);
  out->st_mtim = ToTimespec(inode.mtime);
  out->st_ctim = ToTimespec(inode.ctime);
}

Entry VolumeImpl::MakeEntry(const InodeRef& inode) {
  inode_cache_->Use(inode);
  Entry entry;
  entry.inode = inode->number;
  entry.generation = inode->generation;
  FillStat(*inode, context_.geometry.block_bytes, &entry.attributes);
  return entry;
}

absl::StatusOr<Entry> VolumeImpl::Lookup(InodeId directory, std::string_view name) {
  ELIDEFS_RETURN_IF_ERROR(CheckName(name));
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef parent, GetInode(directory));
  UseGuard use(inode_cache_.get());
  InodeRef child;
  {
    // The child is pinned while the parent is locked: its number cannot be given to another inode in between.
    Inode& locked = *parent;
    MutexLock lock(locked.mutex);
    if (!locked.IsDirectory()) return ErrnoError(ENOTDIR, absl::StrCat("inode ", directory, " is not a directory"));
    if (locked.links == 0) return ErrnoError(ENOENT, absl::StrCat("directory ", directory, " was removed"));
    Directory names(&context_, &locked);
    const absl::StatusOr<DirectoryMatch> match = names.Find(name);
    if (!match.ok()) return ReportDamage(context_, match.status());
    if (match->inode == 0) return ErrnoError(ENOENT, absl::StrCat("no such name in directory ", directory));
    absl::StatusOr<InodeRef> found = inode_cache_->Get(match->inode);
    if (!found.ok()) {
      absl::Status status = found.status();
      if (StatusToErrno(status) == ENOENT) {
        status =
            CorruptionError(absl::StrCat("directory ", directory, " names inode ", match->inode, ", which is free"));
      }
      return ReportDamage(context_, std::move(status));
    }
    child = *std::move(found);
    use.Hold(child);
  }
  MutexLock lock(child->mutex);
  return MakeEntry(child);
}

absl::StatusOr<Entry> VolumeImpl::LookupInode(InodeId inode) {
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef found, GetInode(inode));
  MutexLock lock(found->mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckAlive(*found));
  return MakeEntry(found);
}

void VolumeImpl::Forget(InodeId inode, uint64_t lookups) {
  if (inode <= context_.geometry.inode_count) inode_cache_->Unuse(static_cast<InodeNumber>(inode), lookups);
}

absl::StatusOr<struct stat> VolumeImpl::GetAttributes(InodeId inode) {
  if (inode == 0 || inode > context_.geometry.inode_count) return ErrnoError(ENOENT, absl::StrCat("no inode ", inode));
  absl::StatusOr<InodeRef> found = inode_cache_->Get(static_cast<InodeNumber>(inode));
  if (!found.ok()) return ReportDamage(context_, found.status());
  Inode& locked = **found;
  MutexLock lock(locked.mutex);
  ELIDEFS_RETURN_IF_ERROR(CheckAlive(locked));
  struct stat attributes;
  FillStat(locked, context_.geometry.block_bytes, &attributes);
  return attributes;
}

absl::StatusOr<std::string> VolumeImpl::ReadLink(InodeId inode) {
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef found, GetInode(inode));
  MutexLock lock(found->mutex);
  found.get()->mutex.AssertHeld();
  Inode& locked = *found;
  locked.mutex.AssertHeld();
  ELIDEFS_RETURN_IF_ERROR(CheckAlive(locked));
  if (!locked.IsSymlink()) return ErrnoError(EINVAL, absl::StrCat("inode ", inode, " is not a symbolic link"));
  absl::StatusOr<std::string> target = LinkTarget(context_, locked);
  if (!target.ok()) return ReportDamage(context_, target.status());
  dirty_times_->TouchAccessTime(found, Now());
  return target;
}

absl::Status VolumeImpl::ReadDirectory(InodeId directory, uint64_t cookie,
                                       const std::function<bool(const DirectoryItem&)>& visit) {
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef found, GetInode(directory));
  while (true) {
    std::vector<CopiedItem> items;
    items.reserve(kItemsPerStep);
    {
      MutexLock lock(found->mutex);
      Inode& locked = *found;
      locked.mutex.AssertHeld();
      if (!locked.IsDirectory()) return ErrnoError(ENOTDIR, absl::StrCat("inode ", directory, " is not a directory"));
      if (locked.links == 0) return absl::OkStatus();  // removed: reads as empty
      Directory names(&context_, &locked);
      absl::Status status = names.ForEach(cookie, [&items](const Directory::Entry& entry) {
        items.push_back(
            {std::string(entry.name), entry.inode, ModeOfDirectoryType(entry.file_type), entry.next_cookie});
        return items.size() < kItemsPerStep;
      });
      if (!status.ok()) return ReportDamage(context_, std::move(status));
      if (cookie == 0) dirty_times_->TouchAccessTime(found, Now());
    }
    for (const CopiedItem& item : items) {
      if (!visit(
              {.name = item.name, .inode = item.inode, .mode_type = item.mode_type, .next_cookie = item.next_cookie})) {
        return absl::OkStatus();
      }
      cookie = item.next_cookie;
    }
    if (items.size() < kItemsPerStep) return absl::OkStatus();
  }
}

absl::StatusOr<VolumeSpace> VolumeImpl::GetSpace() {
  const Geometry& geometry = context_.geometry;
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef buffer, context_.cache->Read(geometry.SuperBlockNumber(), nullptr));
  const SuperBlock* const super_block = buffer->As<SuperBlock>(kSuperBlockOffsetBytes % geometry.block_bytes);
  VolumeSpace space;
  space.block_bytes = geometry.block_bytes;
  // As df expects it: without the blocks that hold the volume's own structure, where mke2fs recorded their number.
  const uint64_t overhead = super_block->s_overhead_blocks;
  space.blocks = overhead < geometry.block_count ? geometry.block_count - overhead : geometry.block_count;
  space.free_blocks = context_.blocks->free_blocks();
  space.available_blocks = context_.blocks->available_blocks();
  space.inodes = geometry.inode_count;
  space.free_inodes =
      context_.inodes != nullptr ? context_.inodes->free_inodes() : context_.groups->initial_free_inodes();
  uint64_t halves[2];
  std::memcpy(halves, super_block->s_uuid, sizeof(halves));
  space.filesystem_id = halves[0] ^ halves[1];
  return space;
}

}  // namespace core
}  // namespace elidefs
