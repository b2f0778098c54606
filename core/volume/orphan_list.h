// OrphanList: the singly linked list of inodes (s_last_orphan, then i_dtime as "next") whose deletion or truncate is to
// be finished after a crash. Changes are journaled: the superblock's buffer is an ordinary metadata buffer here.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

class OrphanList {
 public:
  static constexpr uint32_t kCredits = 3;  // superblock, the inode, its predecessor

  explicit OrphanList(VolumeContext* context) : context_(context) {}

  // Puts the inode at the head and writes superblock and inode. Idempotent.
  absl::Status Add(Handle& handle, const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  // Unlinks it; writes the superblock or the predecessor. The caller writes the inode (dtime is set to 0). Idempotent.
  absl::Status Remove(Handle& handle, const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  // At mount: the numbers found on disk, head first; bounded by the inode count, loops and bad numbers are EUCLEAN.
  // Does not change anything.
  absl::StatusOr<std::vector<InodeNumber>> ReadFromDisk();
  // At mount: makes the in-memory list agree with the disk.
  void Adopt(std::vector<InodeRef> in_order) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What relinking an inode needs without its mutex.
  struct Member {
    InodeRef inode;
    BufferRef table_buffer;
    uint32_t table_offset_bytes = 0;
  };
  absl::StatusOr<BufferRef> SuperBlockBuffer();
  void WriteHead(Handle& handle, const BufferRef& super_block, InodeNumber head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  VolumeContext* const context_;
  Mutex mutex_;                                       // inside the inode's mutex and the handle
  std::vector<Member> list_ ABSL_GUARDED_BY(mutex_);  // back() is the head; bounded by the inodes in use
};

}  // namespace elidefs::core
