#include "core/volume/orphan_list.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/inode/inode_store.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

SuperBlock* SuperBlockIn(Buffer& buffer) {
  return buffer.As<SuperBlock>(kSuperBlockOffsetBytes % buffer.size_bytes());
}

}  // namespace

absl::StatusOr<BufferRef> OrphanList::SuperBlockBuffer() {
  return context_->cache->Read(context_->geometry.SuperBlockNumber(), nullptr);
}

void OrphanList::WriteHead(Handle& handle, const BufferRef& super_block, InodeNumber head) {
  handle.Dirty(super_block);
  SuperBlock* const raw = SuperBlockIn(*super_block);
  raw->s_last_orphan = head;
  SealSuperBlock(raw);
}

absl::Status OrphanList::Add(Handle& handle, const InodeRef& inode) {
  if (inode->on_orphan_list) return absl::OkStatus();
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef super_block, SuperBlockBuffer());
  MutexLock lock(mutex_);
  const uint32_t old_dtime = inode->dtime.load(std::memory_order_relaxed);
  inode->dtime.store(list_.empty() ? 0 : list_.back().inode->number, std::memory_order_relaxed);
  if (absl::Status status = context_->inode_store->Write(handle, *inode); !status.ok()) {
    inode->dtime.store(old_dtime, std::memory_order_relaxed);
    return status;
  }
  WriteHead(handle, super_block, inode->number);
  list_.push_back({inode, inode->table_buffer, inode->table_offset_bytes});
  inode->on_orphan_list = true;
  return absl::OkStatus();
}

absl::Status OrphanList::Remove(Handle& handle, const InodeRef& inode) {
  if (!inode->on_orphan_list) return absl::OkStatus();
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef super_block, SuperBlockBuffer());
  MutexLock lock(mutex_);
  // Most orphans go soon after they came: search from the head.
  auto found = list_.end();
  while (found != list_.begin() && std::prev(found)->inode != inode) --found;
  if (found == list_.begin()) {
    return CorruptionError(absl::StrCat("inode ", inode->number, " is missing from the orphan list"));
  }
  --found;
  const InodeNumber next = found == list_.begin() ? 0 : std::prev(found)->inode->number;
  if (std::next(found) == list_.end()) {
    WriteHead(handle, super_block, next);
  } else {
    const Member& predecessor = *std::next(found);
    ELIDEFS_RETURN_IF_ERROR(context_->inode_store->WriteDtime(
        handle, *predecessor.inode, next, predecessor.table_buffer, predecessor.table_offset_bytes));
  }
  list_.erase(found);
  inode->dtime.store(0, std::memory_order_relaxed);
  inode->on_orphan_list = false;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<InodeNumber>> OrphanList::ReadFromDisk() {
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef super_block, SuperBlockBuffer());
  const Geometry& geometry = context_->geometry;
  std::vector<InodeNumber> numbers;
  absl::flat_hash_set<InodeNumber> seen;  // bounded: every number is one of the volume's inodes and comes once
  InodeNumber number = SuperBlockIn(*super_block)->s_last_orphan;
  while (number != 0) {
    if (number < geometry.first_inode || number > geometry.inode_count) {
      return CorruptionError(absl::StrCat("orphan list names inode ", number, ", which is not a user's inode"));
    }
    if (!seen.insert(number).second) {
      return CorruptionError(absl::StrCat("orphan list comes back to inode ", number));
    }
    absl::StatusOr<InodeRef> inode = context_->inode_store->Read(number, true);
    if (!inode.ok()) {
      if (StatusToErrno(inode.status()) != ENOENT) return inode.status();
      return CorruptionError(absl::StrCat("orphan list names inode ", number, ", which is free"));
    }
    numbers.push_back(number);
    number = (*inode)->dtime.load(std::memory_order_relaxed);
  }
  return numbers;
}

void OrphanList::Adopt(std::vector<InodeRef> in_order) {
  std::vector<Member> members;
  members.reserve(in_order.size());
  for (auto inode = in_order.rbegin(); inode != in_order.rend(); ++inode) {
    MutexLock inode_lock((*inode)->mutex);
    (*inode)->on_orphan_list = true;
    members.push_back({*inode, (*inode)->table_buffer, (*inode)->table_offset_bytes});
  }
  MutexLock lock(mutex_);
  list_ = std::move(members);
}

}  // namespace elidefs::core
