// Changes of a file's size, and the deletion of inodes whose last name and last user are gone.
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/inode_allocator.h"
#include "core/extent/extent_tree.h"
#include "core/inode/inode_store.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"
#include "core/xattr/xattr_block.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kTruncateHandleCredits = ExtentTree::kTruncateCredits + 1 + OrphanList::kCredits;

}  // namespace

// One or more transactions. The inode goes on the orphan list in the first one if that does not finish the work, so
// that a crash in between is completed by the next mount.
absl::Status VolumeImpl::TruncateBlocks(const InodeRef& inode, LogicalBlock first) {
  ExtentTree tree(&context_, inode.get());
  tree.PrepareTruncate(first);
  while (true) {
    ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(kTruncateHandleCredits));
    const absl::StatusOr<bool> done = TruncateStep(handle, inode, first);
    // Blocks are free already that the inode on disk still maps: this must not be committed.
    if (!done.ok()) return AbandonChange(context_, done.status());
    if (*done) return absl::OkStatus();
  }
}

absl::StatusOr<bool> VolumeImpl::TruncateStep(Handle& handle, const InodeRef& inode, LogicalBlock first) {
  ExtentTree tree(&context_, inode.get());
  ELIDEFS_ASSIGN_OR_RETURN(const bool done, tree.TruncateFrom(handle, first));
  handle.OrderAfter(inode->need.load(std::memory_order_acquire));
  if (!done && !inode->on_orphan_list) ELIDEFS_RETURN_IF_ERROR(orphans_->Add(handle, inode));
  if (done && inode->on_orphan_list && inode->links > 0) ELIDEFS_RETURN_IF_ERROR(orphans_->Remove(handle, inode));
  ELIDEFS_RETURN_IF_ERROR(context_.inode_store->Write(handle, *inode));
  inode->JoinTransaction(handle.transaction(), /*datasync=*/true);
  dirty_times_->Remove(*inode);
  return done;
}

absl::Status VolumeImpl::FinishTruncate(const InodeRef& inode) {
  if (!inode->HasExtents()) {
    return ErrnoError(
        EOPNOTSUPP, absl::StrCat("inode ", inode->number, ": a block-mapped file waits for its truncate; run e2fsck"));
  }
  const uint64_t block_bytes = context_.geometry.block_bytes;
  const auto first = static_cast<LogicalBlock>((inode->disk_size_bytes + block_bytes - 1) / block_bytes);
  return TruncateBlocks(inode, first);
}

absl::Status VolumeImpl::SetSize(const InodeRef& inode, uint64_t size_bytes) {
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  if (size_bytes > context_.geometry.MaxFileSizeByFeatures()) {
    return ErrnoError(EFBIG, "the volume lacks the large_file feature; add it with tune2fs");
  }
  if (size_bytes >> context_.geometry.block_shift >= UINT32_MAX) {
    return ErrnoError(EFBIG, "beyond the largest file size of the format");
  }
  const DataPath::Exclusive gate(data_path_.get(), inode);
  MutexLock lock(inode->mutex);
  if (inode->IsDirectory()) return ErrnoError(EISDIR, "the size of a directory cannot be set");
  if (!inode->IsRegular()) return ErrnoError(EINVAL, "only regular files have a size that can be set");
  if ((inode->flags & (kInodeImmutable | kInodeAppend)) != 0) {
    return ErrnoError(EPERM, "the file is immutable or append-only");
  }
  if (!inode->HasExtents()) {
    return ErrnoError(EOPNOTSUPP,
                      "writes to block-mapped (ext3) files are not supported; convert the file with the kernel");
  }
  data_path_->ReleaseWindow(inode);
  const bool shrinks = size_bytes < inode->size_bytes;
  // Nothing behind the end of a file may show again when it grows.
  if (size_bytes != inode->size_bytes) {
    ELIDEFS_RETURN_IF_ERROR(data_path_->ZeroTail(*inode, shrinks ? size_bytes : inode->size_bytes));
  }
  inode->mtime = inode->ctime = Now();
  inode->size_bytes = inode->disk_size_bytes = size_bytes;
  if (shrinks) return FinishTruncate(inode);
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(1));
  if (absl::Status status = context_.inode_store->Write(handle, *inode); !status.ok()) {
    return AbandonChange(context_, std::move(status));
  }
  handle.OrderAfter(inode->need.load(std::memory_order_acquire));
  inode->JoinTransaction(handle.transaction(), /*datasync=*/true);
  dirty_times_->Remove(*inode);
  return absl::OkStatus();
}

absl::Status VolumeImpl::ReleaseInode(Handle& handle, const InodeRef& inode) {
  ELIDEFS_RETURN_IF_ERROR(ReleaseXattrBlock(&context_, handle, *inode));
  ELIDEFS_RETURN_IF_ERROR(orphans_->Remove(handle, inode));
  inode->dtime.store(static_cast<uint32_t>(TimeOfDay().tv_sec), std::memory_order_relaxed);
  ELIDEFS_RETURN_IF_ERROR(context_.inode_store->Write(handle, *inode));
  return context_.inodes->Free(handle, inode->number, inode->IsDirectory());
}

absl::Status VolumeImpl::DeleteUnused(const InodeRef& inode) {
  ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  const DataPath::Exclusive gate(data_path_.get(), inode);
  MutexLock lock(inode->mutex);
  if (inode->deleted || inode->links > 0 || inode->lookups.load(std::memory_order_acquire) > 0) return absl::OkStatus();
  data_path_->ReleaseWindow(inode);
  if (OwnsBlocksWithoutExtents(*inode, context_.geometry)) {
    return ErrnoError(EOPNOTSUPP, absl::StrCat("inode ", inode->number,
                                               " is block-mapped (ext3); it stays on the orphan list: run e2fsck"));
  }
  inode->size_bytes = inode->disk_size_bytes = 0;
  if (inode->HasExtents()) ELIDEFS_RETURN_IF_ERROR(TruncateBlocks(inode, 0));
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_.journal->Start(InodeAllocator::kCredits + OrphanList::kCredits + 1 +
                                                                  kXattrReleaseCredits));
  if (absl::Status status = ReleaseInode(handle, inode); !status.ok())
    return AbandonChange(context_, std::move(status));
  inode->deleted = true;
  dirty_times_->Remove(*inode);
  inode->JoinTransaction(handle.transaction(), /*datasync=*/true);
  inode_cache_->Drop(inode);
  return absl::OkStatus();
}

}  // namespace elidefs::core
