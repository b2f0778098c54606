#include "core/alloc/inode_allocator.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/bitmap.h"
#include "core/ondisk/inode_layout.h"

namespace elidefs::core {

InodeAllocator::InodeAllocator(const Geometry* geometry, GroupTable* groups, const PlantedBugs* planted)
    : geometry_(geometry),
      groups_(groups),
      planted_(planted),
      free_inodes_(groups->initial_free_inodes()),
      directories_(groups->initial_directories()) {}

absl::StatusOr<InodeAllocator::FlexSummary> InodeAllocator::Summarize(GroupNumber flex) {
  FlexSummary summary;
  const uint64_t first = uint64_t{flex} * geometry_->groups_per_flex;
  const uint64_t end = std::min<uint64_t>(first + geometry_->groups_per_flex, geometry_->group_count);
  for (uint64_t number = first; number < end; ++number) {
    MutexLock lock(groups_->group(static_cast<GroupNumber>(number)).mutex);
    ELIDEFS_ASSIGN_OR_RETURN(const GroupInfo info, groups_->Read(static_cast<GroupNumber>(number)));
    summary.free_inodes += info.free_inodes;
    summary.free_blocks += info.free_blocks;
    summary.directories += info.used_directories;
  }
  return summary;
}

absl::StatusOr<GroupNumber> InodeAllocator::HomeOfTopDirectory() {
  const GroupNumber flexes = static_cast<GroupNumber>(
      (uint64_t{geometry_->group_count} + geometry_->groups_per_flex - 1) / geometry_->groups_per_flex);
  std::vector<FlexSummary> summaries;
  uint64_t free_inodes = 0;
  uint64_t free_blocks = 0;
  for (GroupNumber flex = 0; flex < flexes; ++flex) {
    ELIDEFS_ASSIGN_OR_RETURN(summaries.emplace_back(), Summarize(flex));
    free_inodes += summaries.back().free_inodes;
    free_blocks += summaries.back().free_blocks;
  }
  // Above-average room and the fewest directories: trees that are unrelated grow apart from each other.
  std::optional<GroupNumber> best;
  const GroupNumber start = next_top_directory_.fetch_add(1, std::memory_order_relaxed);
  for (GroupNumber i = 0; i < flexes; ++i) {
    const auto flex = static_cast<GroupNumber>((uint64_t{start} + i) % flexes);
    const FlexSummary& summary = summaries[flex];
    if (summary.free_inodes == 0 || summary.free_inodes < free_inodes / flexes ||
        summary.free_blocks < free_blocks / flexes) {
      continue;
    }
    if (!best.has_value() || summary.directories < summaries[*best].directories) best = flex;
  }
  return best.value_or(0) * geometry_->groups_per_flex;
}

absl::Status InodeAllocator::MaterializeBlockBitmap(Handle& handle, GroupNumber number, GroupInfo* info) {
  if ((info->flags & kGroupBlockUninit) == 0) return absl::OkStatus();
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef bitmap, groups_->BlockBitmap(number, *info));
  handle.Dirty(bitmap);
  groups_->SealBlockBitmap(*bitmap, info);
  return absl::OkStatus();
}

absl::StatusOr<InodeNumber> InodeAllocator::AllocateInGroup(Handle& handle, GroupNumber number, bool directory,
                                                            bool* slot_uninitialized) {
  Group& group = groups_->group(number);
  MutexLock lock(group.mutex);
  if (group.corrupt) return InodeNumber{0};
  ELIDEFS_ASSIGN_OR_RETURN(GroupInfo info, groups_->Read(number));
  if (info.free_inodes == 0) return InodeNumber{0};
  const absl::StatusOr<BufferRef> bitmap = groups_->InodeBitmap(number, info);
  if (!bitmap.ok()) {
    group.corrupt = true;
    return bitmap.status();
  }
  const uint32_t inodes = geometry_->inodes_per_group;
  const uint32_t reserved = number == 0 ? std::min(geometry_->first_inode - 1, inodes) : 0;
  const uint32_t index = FindBit((*bitmap)->data(), reserved, inodes, false);
  if (index == inodes) {
    group.corrupt = true;
    return CorruptionError(
        absl::StrCat("group ", number, ": the descriptor counts ", info.free_inodes, " free inodes, the bitmap none"));
  }
  const uint32_t initialized = groups_->InitializedInodes(info);
  *slot_uninitialized = index >= initialized;
  // Under the mutex: whoever takes the next slot of this block must find it blank and not blank it again.
  if (*slot_uninitialized && index % geometry_->InodesPerBlock() == 0) {
    ELIDEFS_RETURN_IF_ERROR(groups_->BlankInodeTableBlock(number, index));
  }
  handle.Dirty(*bitmap);
  SetBit((*bitmap)->data(), index);
  info.unused_inodes = inodes - std::max(initialized, index + 1);
  info.free_inodes -= 1;
  if (directory) info.used_directories += 1;
  groups_->SealInodeBitmap(**bitmap, &info);
  // A group with inodes in use has a block bitmap on disk: checkers and older kernels expect it.
  ELIDEFS_RETURN_IF_ERROR(MaterializeBlockBitmap(handle, number, &info));
  ELIDEFS_RETURN_IF_ERROR(groups_->Write(handle, number, info));
  free_inodes_.fetch_sub(1, std::memory_order_relaxed);
  if (directory) directories_.fetch_add(1, std::memory_order_relaxed);
  return number * geometry_->inodes_per_group + index + 1;
}

absl::StatusOr<InodeNumber> InodeAllocator::Allocate(Handle& handle, InodeNumber parent, bool directory,
                                                     bool* slot_uninitialized) {
  if (parent == 0 || parent > geometry_->inode_count) {
    return CorruptionError(absl::StrCat("parent inode ", parent, " does not exist"));
  }
  if (planted_->out_of_space && planted_->out_of_space()) return ErrnoError(ENOSPC, "no free inodes");
  GroupNumber home = geometry_->GroupOfInode(parent);
  if (directory && parent == kRootInode) {
    ELIDEFS_ASSIGN_OR_RETURN(home, HomeOfTopDirectory());
  }
  const GroupNumber total = geometry_->group_count;
  const GroupNumber flex_first = home / geometry_->groups_per_flex * geometry_->groups_per_flex;
  const GroupNumber flex_count = std::min(geometry_->groups_per_flex, total - flex_first);
  for (GroupNumber i = 0; i < total; ++i) {
    const GroupNumber number = i < flex_count ? flex_first + (home - flex_first + i) % flex_count
                                              : static_cast<GroupNumber>((uint64_t{flex_first} + i) % total);
    ELIDEFS_ASSIGN_OR_RETURN(const InodeNumber inode, AllocateInGroup(handle, number, directory, slot_uninitialized));
    if (inode != 0) return inode;
  }
  return ErrnoError(ENOSPC, "no free inodes");
}

absl::Status InodeAllocator::Free(Handle& handle, InodeNumber inode, bool directory) {
  if (inode < geometry_->first_inode || inode > geometry_->inode_count) {
    return CorruptionError(absl::StrCat("inode ", inode, " cannot be freed"));
  }
  const GroupNumber number = geometry_->GroupOfInode(inode);
  const uint32_t index = (inode - 1) % geometry_->inodes_per_group;
  MutexLock lock(groups_->group(number).mutex);
  ELIDEFS_ASSIGN_OR_RETURN(GroupInfo info, groups_->Read(number));
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef bitmap, groups_->InodeBitmap(number, info));
  if (!TestBit(bitmap->data(), index)) return CorruptionError(absl::StrCat("inode ", inode, " is already free"));
  if (info.free_inodes >= geometry_->inodes_per_group || (directory && info.used_directories == 0)) {
    return CorruptionError(absl::StrCat("group ", number, ": its inode counts contradict inode ", inode));
  }
  handle.Dirty(bitmap);
  ClearBit(bitmap->data(), index);
  info.free_inodes += 1;
  if (directory) info.used_directories -= 1;
  groups_->SealInodeBitmap(*bitmap, &info);
  ELIDEFS_RETURN_IF_ERROR(groups_->Write(handle, number, info));
  free_inodes_.fetch_add(1, std::memory_order_relaxed);
  if (directory) directories_.fetch_sub(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<bool> InodeAllocator::IsAllocated(InodeNumber inode) {
  if (inode == 0 || inode > geometry_->inode_count) {
    return CorruptionError(absl::StrCat("inode ", inode, " lies beyond the volume's ", geometry_->inode_count));
  }
  const GroupNumber number = geometry_->GroupOfInode(inode);
  MutexLock lock(groups_->group(number).mutex);
  ELIDEFS_ASSIGN_OR_RETURN(const GroupInfo info, groups_->Read(number));
  const uint32_t index = (inode - 1) % geometry_->inodes_per_group;
  if (index >= groups_->InitializedInodes(info)) return false;
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef bitmap, groups_->InodeBitmap(number, info));
  return TestBit(bitmap->data(), index);
}

}  // namespace elidefs::core
