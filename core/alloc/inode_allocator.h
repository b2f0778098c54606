// InodeAllocator: inode bitmap, descriptor counts, itable_unused, uninit groups. Threads: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/alloc/group_table.h"
#include "core/geometry.h"
#include "core/journal/journal.h"
#include "core/planted_bugs.h"

namespace elidefs::core {

class InodeAllocator {
 public:
  static constexpr uint32_t kCredits = 4;  // inode bitmap, descriptor, block bitmap when it was uninit, its descriptor

  // After GroupTable::LoadAll.
  InodeAllocator(const Geometry* geometry, GroupTable* groups, const PlantedBugs* planted);

  // Files go to the parent's group while it has room; directories directly below the root are spread over (flex)
  // groups as the Orlov rule suggests, others stay near their parent. `slot_uninitialized` tells that the table slot
  // must be built from zero, not read. ENOSPC.
  absl::StatusOr<InodeNumber> Allocate(Handle& handle, InodeNumber parent, bool directory, bool* slot_uninitialized);
  absl::Status Free(Handle& handle, InodeNumber inode, bool directory);
  // True if the bitmap says so; EUCLEAN beyond the table.
  absl::StatusOr<bool> IsAllocated(InodeNumber inode);

  uint64_t free_inodes() const { return free_inodes_.load(std::memory_order_relaxed); }
  uint64_t directories() const { return directories_.load(std::memory_order_relaxed); }

 private:
  struct FlexSummary {
    uint64_t free_inodes = 0;
    uint64_t free_blocks = 0;
    uint64_t directories = 0;
  };
  absl::StatusOr<FlexSummary> Summarize(GroupNumber flex);
  // The first group of the flex group (the group itself without flex_bg) for a new directory below the root.
  absl::StatusOr<GroupNumber> HomeOfTopDirectory();
  // 0 when the group has no free inode.
  absl::StatusOr<InodeNumber> AllocateInGroup(Handle& handle, GroupNumber number, bool directory,
                                              bool* slot_uninitialized);
  // The group's mutex is held.
  absl::Status MaterializeBlockBitmap(Handle& handle, GroupNumber number, GroupInfo* info);

  const Geometry* const geometry_;
  GroupTable* const groups_;
  const PlantedBugs* const planted_;
  std::atomic<uint64_t> free_inodes_;
  std::atomic<uint64_t> directories_;
  std::atomic<GroupNumber> next_top_directory_{0};  // breaks ties among equally good homes
};

}  // namespace elidefs::core
