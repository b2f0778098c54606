#include "core/alloc/block_allocator.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/bitmap.h"

namespace elidefs::core {
namespace {

absl::Status NoSpace() {
  return ErrnoError(ENOSPC, "no free blocks");
}

// Splits a range at group boundaries and calls `visit` for each part until it fails.
template <typename Visit>
absl::Status ForEachPart(const Geometry& geometry, BlockRange range, Visit visit) {
  while (range.count > 0) {
    const GroupNumber group = geometry.GroupOfBlock(range.start);
    const BlockNumber end = geometry.FirstBlockOfGroup(group) + geometry.BlocksInGroup(group);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(range.count, end - range.start));
    ELIDEFS_RETURN_IF_ERROR(visit(BlockRange{range.start, count}));
    range.start += count;
    range.count -= count;
  }
  return absl::OkStatus();
}

}  // namespace

BlockAllocator::BlockAllocator(const Geometry* geometry, GroupTable* groups, const PlantedBugs* planted)
    : geometry_(geometry),
      groups_(groups),
      planted_(planted),
      free_blocks_(groups->initial_free_blocks()),
      unclaimed_(static_cast<int64_t>(groups->initial_free_blocks())) {}

uint64_t BlockAllocator::Claim(uint64_t least, uint64_t wanted, bool privileged) {
  if (planted_->out_of_space && planted_->out_of_space()) return 0;
  const int64_t floor = privileged ? 0 : static_cast<int64_t>(geometry_->reserved_blocks);
  int64_t seen = unclaimed_.load(std::memory_order_relaxed);
  while (true) {
    const int64_t room = seen - floor;
    if (room <= 0 || static_cast<uint64_t>(room) < least) return 0;
    const uint64_t granted = std::min(wanted, static_cast<uint64_t>(room));
    if (unclaimed_.compare_exchange_weak(seen, seen - static_cast<int64_t>(granted), std::memory_order_relaxed)) {
      return granted;
    }
  }
}

uint64_t BlockAllocator::available_blocks() const {
  const uint64_t taken = reserved_.load(std::memory_order_relaxed) + promised_.load(std::memory_order_relaxed) +
                         geometry_->reserved_blocks;
  const uint64_t free = free_blocks_.load(std::memory_order_relaxed);
  return free > taken ? free - taken : 0;
}

absl::Status BlockAllocator::CheckRange(BlockRange range) const {
  if (geometry_->IsDataBlockValid(range.start, range.count) && !groups_->IsSystemBlock(range.start, range.count)) {
    return absl::OkStatus();
  }
  return CorruptionError(
      absl::StrCat("blocks ", range.start, "+", range.count, " lie outside the volume or hold its metadata"));
}

absl::Status BlockAllocator::Load(GroupNumber number, Group& group) {
  if (group.loaded) return absl::OkStatus();
  if (group.corrupt) return CorruptionError(absl::StrCat("group ", number, ": its block bitmap is damaged"));
  ELIDEFS_ASSIGN_OR_RETURN(const GroupInfo info, groups_->Read(number));
  const absl::StatusOr<BufferRef> bitmap = groups_->BlockBitmap(number, info);
  if (!bitmap.ok()) {
    group.corrupt = true;
    return bitmap.status();
  }
  group.busy = WordsOf((*bitmap)->data(), geometry_->BlocksInGroup(number));
  group.free_unreserved = CountClear(group.busy);
  if (group.free_unreserved != info.free_blocks) {
    group.corrupt = true;
    return CorruptionError(absl::StrCat("group ", number, ": the descriptor counts ", info.free_blocks,
                                        " free blocks, the bitmap ", group.free_unreserved));
  }
  group.loaded = true;
  return absl::OkStatus();
}

BlockRange BlockAllocator::Take(GroupNumber number, Group& group, uint32_t first_bit, uint32_t end_bit) {
  SetRun(absl::MakeSpan(group.busy), first_bit, end_bit);
  group.free_unreserved -= end_bit - first_bit;
  return BlockRange{geometry_->FirstBlockOfGroup(number) + first_bit, end_bit - first_bit};
}

absl::StatusOr<BlockRange> BlockAllocator::TakeFromGroup(GroupNumber number, uint32_t goal_bit, uint32_t wanted) {
  Group& group = groups_->group(number);
  MutexLock lock(group.mutex);
  if (group.corrupt || group.free_unreserved == 0) return BlockRange{};
  ELIDEFS_RETURN_IF_ERROR(Load(number, group));
  const uint32_t bits = geometry_->BlocksInGroup(number);
  if (goal_bit < bits) {
    // An exact continuation, however short, keeps a file that is being appended to in one piece.
    const uint32_t end = FindBit(group.busy, goal_bit, bits - goal_bit < wanted ? bits : goal_bit + wanted, true);
    if (end > goal_bit) return Take(number, group, goal_bit, end);
  }
  uint32_t best = 0;
  uint32_t best_length = 0;
  for (uint32_t start = FindBit(group.busy, 0, bits, false); start < bits;) {
    const uint32_t end = FindBit(group.busy, start, bits, true);
    if (end - start > best_length) {
      best = start;
      best_length = end - start;
    }
    start = FindBit(group.busy, end, bits, false);
  }
  if (best_length == 0) return BlockRange{};
  return Take(number, group, best, best + std::min(best_length, wanted));
}

absl::StatusOr<BlockRange> BlockAllocator::Choose(BlockNumber goal, uint32_t claimed) {
  GroupNumber home = 0;
  if (geometry_->IsDataBlockValid(goal, 1)) {
    home = geometry_->GroupOfBlock(goal);
  } else {
    goal = 0;
  }
  const uint32_t goal_bit = goal == 0 ? ~0U : static_cast<uint32_t>(goal - geometry_->FirstBlockOfGroup(home));
  const GroupNumber total = geometry_->group_count;
  const GroupNumber flex_first = home / geometry_->groups_per_flex * geometry_->groups_per_flex;
  const GroupNumber flex_count = std::min(geometry_->groups_per_flex, total - flex_first);
  absl::StatusOr<BlockRange> range = TakeFromGroup(home, goal_bit, claimed);
  for (GroupNumber i = 1; i < total && range.ok() && range->count == 0; ++i) {
    // First the rest of the home's flex group, then everything behind it, wrapping around.
    const GroupNumber number = i < flex_count ? flex_first + (home - flex_first + i) % flex_count
                                              : static_cast<GroupNumber>((uint64_t{flex_first} + i) % total);
    range = TakeFromGroup(number, ~0U, claimed);
  }
  const uint32_t found = range.ok() ? range->count : 0;
  Unclaim(claimed - found);
  if (range.ok() && found == 0) return NoSpace();
  return range;
}

absl::StatusOr<BlockRange> BlockAllocator::Reserve(BlockNumber goal, uint32_t wanted, bool privileged) {
  if (wanted == 0) return ErrnoError(EINVAL, "a reservation of no blocks");
  const uint64_t claimed = Claim(1, wanted, privileged);
  if (claimed == 0) return NoSpace();
  ELIDEFS_ASSIGN_OR_RETURN(const BlockRange range, Choose(goal, static_cast<uint32_t>(claimed)));
  reserved_.fetch_add(range.count, std::memory_order_relaxed);
  return range;
}

void BlockAllocator::ClearBusy(BlockRange range) {
  ForEachPart(*geometry_, range, [this](BlockRange part) {
    const GroupNumber number = geometry_->GroupOfBlock(part.start);
    Group& group = groups_->group(number);
    const auto first = static_cast<uint32_t>(part.start - geometry_->FirstBlockOfGroup(number));
    MutexLock lock(group.mutex);
    if (group.loaded) {
      ClearRun(absl::MakeSpan(group.busy), first, first + part.count);
      group.free_unreserved += part.count;
    }
    return absl::OkStatus();
  }).IgnoreError();
}

void BlockAllocator::Unreserve(BlockRange range) {
  if (range.count == 0) return;
  ClearBusy(range);
  reserved_.fetch_sub(range.count, std::memory_order_relaxed);
  Unclaim(range.count);
}

absl::Status BlockAllocator::Promise(uint64_t count, bool privileged) {
  if (count == 0) return absl::OkStatus();
  if (Claim(count, count, privileged) == 0) return NoSpace();
  promised_.fetch_add(count, std::memory_order_relaxed);
  return absl::OkStatus();
}

void BlockAllocator::Unpromise(uint64_t count) {
  promised_.fetch_sub(count, std::memory_order_relaxed);
  Unclaim(count);
}

absl::Status BlockAllocator::CommitPart(Handle& handle, BlockRange part) {
  const GroupNumber number = geometry_->GroupOfBlock(part.start);
  const auto first = static_cast<uint32_t>(part.start - geometry_->FirstBlockOfGroup(number));
  Group& group = groups_->group(number);
  MutexLock lock(group.mutex);
  ELIDEFS_RETURN_IF_ERROR(Load(number, group));
  ELIDEFS_ASSIGN_OR_RETURN(GroupInfo info, groups_->Read(number));
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef bitmap, groups_->BlockBitmap(number, info));
  if (FindBit(bitmap->data(), first, first + part.count, true) != first + part.count || info.free_blocks < part.count) {
    return CorruptionError(absl::StrCat("blocks ", part.start, "+", part.count, " are already in use"));
  }
  handle.Dirty(bitmap);
  for (uint32_t bit = first; bit < first + part.count; ++bit) SetBit(bitmap->data(), bit);
  groups_->SealBlockBitmap(*bitmap, &info);
  info.free_blocks -= part.count;
  ELIDEFS_RETURN_IF_ERROR(groups_->Write(handle, number, info));
  free_blocks_.fetch_sub(part.count, std::memory_order_relaxed);
  reserved_.fetch_sub(part.count, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status BlockAllocator::Commit(Handle& handle, BlockRange range) {
  ELIDEFS_RETURN_IF_ERROR(CheckRange(range));
  return ForEachPart(*geometry_, range, [&](BlockRange part) { return CommitPart(handle, part); });
}

absl::StatusOr<BlockNumber> BlockAllocator::AllocateMetadata(Handle& handle, BlockNumber goal, bool from_promise) {
  if (from_promise) {
    // The promise already took its space out of the unclaimed blocks; its holder gives that back later.
    unclaimed_.fetch_sub(1, std::memory_order_relaxed);
  } else if (Claim(1, 1, false) == 0) {
    return NoSpace();
  }
  ELIDEFS_ASSIGN_OR_RETURN(const BlockRange range, Choose(goal, 1));
  reserved_.fetch_add(1, std::memory_order_relaxed);
  if (absl::Status status = Commit(handle, range); !status.ok()) {
    Unreserve(range);
    return status;
  }
  return range.start;
}

absl::Status BlockAllocator::FreePart(Handle& handle, BlockRange part) {
  const GroupNumber number = geometry_->GroupOfBlock(part.start);
  const auto first = static_cast<uint32_t>(part.start - geometry_->FirstBlockOfGroup(number));
  Group& group = groups_->group(number);
  MutexLock lock(group.mutex);
  // The busy overlay keeps the blocks taken until Release, so it has to exist before the bits go.
  ELIDEFS_RETURN_IF_ERROR(Load(number, group));
  ELIDEFS_ASSIGN_OR_RETURN(GroupInfo info, groups_->Read(number));
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef bitmap, groups_->BlockBitmap(number, info));
  if (FindBit(bitmap->data(), first, first + part.count, false) != first + part.count) {
    return CorruptionError(absl::StrCat("some of the blocks ", part.start, "+", part.count, " are already free"));
  }
  handle.Dirty(bitmap);
  for (uint32_t bit = first; bit < first + part.count; ++bit) ClearBit(bitmap->data(), bit);
  groups_->SealBlockBitmap(*bitmap, &info);
  info.free_blocks += part.count;
  return groups_->Write(handle, number, info);
}

absl::Status BlockAllocator::Free(Handle& handle, BlockRange range, bool metadata) {
  ELIDEFS_RETURN_IF_ERROR(CheckRange(range));
  return ForEachPart(*geometry_, range, [&](BlockRange part) {
    ELIDEFS_RETURN_IF_ERROR(FreePart(handle, part));
    if (metadata) {
      for (uint32_t i = 0; i < part.count; ++i) handle.Revoke(part.start + i);
    }
    free_blocks_.fetch_add(part.count, std::memory_order_relaxed);
    if (planted_->reuse_freed_early) {
      ClearBusy(part);
      Unclaim(part.count);
      return absl::OkStatus();
    }
    awaiting_durability_.fetch_add(part.count, std::memory_order_relaxed);
    handle.ReleaseWhenDurable(part);
    return absl::OkStatus();
  });
}

void BlockAllocator::Release(const std::vector<BlockRange>& ranges) {
  for (const BlockRange& range : ranges) {
    ClearBusy(range);
    awaiting_durability_.fetch_sub(range.count, std::memory_order_relaxed);
    Unclaim(range.count);
  }
}

BlockNumber BlockAllocator::GoalForInode(InodeNumber inode) const {
  if (inode == 0 || inode > geometry_->inode_count) return 0;
  // Metadata of a flex group fills its first groups; the goal lies behind it.
  const BlockNumber goal = groups_->SkipSystemBlocks(geometry_->FirstBlockOfGroup(geometry_->GroupOfInode(inode)));
  return goal < geometry_->block_count ? goal : 0;
}

}  // namespace elidefs::core
