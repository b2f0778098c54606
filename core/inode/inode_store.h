// InodeStore: inodes between their table blocks and memory.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "core/inode/inode.h"

namespace elidefs::core {

struct VolumeContext;

class InodeStore {
 public:
  explicit InodeStore(VolumeContext* context) : context_(context) {}

  // Decodes and checks (checksum, mode, size against the format's limits, flags we know, extra size) an allocated
  // inode. ENOENT when the inode is free or deleted (links 0, not an orphan), EUCLEAN when damaged, EOPNOTSUPP for
  // kinds we refuse (inline data, encrypted, ...). `allow_orphan` accepts links == 0 with a mode (orphan processing).
  absl::StatusOr<InodeRef> Read(InodeNumber inode, bool allow_orphan);
  // A fresh object for an inode just allocated: table buffer attached (zeroed slot), fields at their defaults, crtime
  // now. The generation is one more than what the slot held. The caller has a handle open and calls Write in it.
  absl::StatusOr<InodeRef> Create(InodeNumber inode, bool slot_uninitialized);
  // Encodes the decoded fields into the table buffer (keeping in-inode xattrs and fields we do not know), sets the
  // checksum and marks the buffer dirty (1 credit). Upgrades extra_bytes to want_extra_isize on new inodes only. EFBIG
  // when i_blocks or (without large_file) the size does not fit the format, EMLINK; then nothing was changed.
  absl::Status Write(Handle& handle, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  // Changes i_dtime alone (orphan list relinking; 1 credit). Does not need the inode's mutex.
  absl::Status WriteDtime(Handle& handle, Inode& inode, uint32_t dtime, const BufferRef& table_buffer,
                          uint32_t table_offset_bytes);

 private:
  // Whoever reads or changes the bytes of a slot holds the mutex of its number: a lookup by number may meet an inode
  // that is being made, and the orphan list changes a member without that inode's own mutex. Leaf locks.
  Mutex& SlotMutex(InodeNumber inode) { return slot_mutexes_[inode % kSlotMutexes]; }

  static constexpr size_t kSlotMutexes = 64;
  VolumeContext* const context_;
  std::array<Mutex, kSlotMutexes> slot_mutexes_;
};

}  // namespace elidefs::core
