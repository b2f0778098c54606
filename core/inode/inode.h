// Inode: one inode in memory. Decoded fields, its place on disk, and the state that durability and data I/O keep for
// it.
//
// Ownership: the InodeCache owns it; users hold InodeRef. Locks: `mutex` is the outermost lock of DESIGN ("inode
// (parent before child) -> handle -> ..."). Whoever changes a decoded field holds `mutex` and an open handle and calls
// InodeStore::Write before the handle closes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "blockio/ticket.h"
#include "core/cache/block_cache.h"
#include "core/data/inode_io.h"
#include "core/extent/extent_shape.h"
#include "core/geometry.h"
#include "core/journal/journal.h"
#include "core/ondisk/inode_layout.h"

namespace elidefs::core {

struct Timestamp {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;
};

class Inode : public std::enable_shared_from_this<Inode> {
 public:
  explicit Inode(InodeNumber inode_number) : number(inode_number) {}
  Inode(const Inode&) = delete;
  Inode& operator=(const Inode&) = delete;

  const InodeNumber number;

  mutable TreeMutex mutex;
  uint16_t mode ABSL_GUARDED_BY(mutex) = 0;  // type and permissions as in st_mode
  uint32_t uid ABSL_GUARDED_BY(mutex) = 0;
  uint32_t gid ABSL_GUARDED_BY(mutex) = 0;
  uint32_t links ABSL_GUARDED_BY(mutex) = 0;  // 1 on a dir_nlink directory with more than 65,000 links
  uint32_t flags ABSL_GUARDED_BY(mutex) = 0;  // InodeFlag
  uint32_t generation ABSL_GUARDED_BY(mutex) = 0;
  uint64_t size_bytes ABSL_GUARDED_BY(mutex) = 0;       // what users see: includes writes accepted and not yet on disk
  uint64_t disk_size_bytes ABSL_GUARDED_BY(mutex) = 0;  // what i_size says: moves after data completed (D2)
  uint64_t blocks_512 ABSL_GUARDED_BY(mutex) = 0;       // i_blocks in 512-byte units, whatever its unit on disk
  uint64_t pending_blocks ABSL_GUARDED_BY(mutex) = 0;   // of accepted writes, not in blocks_512 yet
  bool tail_is_zero ABSL_GUARDED_BY(mutex) =
      false;  // what lies behind the end of file in its block was seen to be zero
  uint64_t xattr_block ABSL_GUARDED_BY(mutex) = 0;
  uint64_t version ABSL_GUARDED_BY(mutex) = 0;
  Timestamp atime ABSL_GUARDED_BY(mutex);
  Timestamp mtime ABSL_GUARDED_BY(mutex);
  Timestamp ctime ABSL_GUARDED_BY(mutex);
  Timestamp crtime ABSL_GUARDED_BY(mutex);
  uint16_t extra_bytes ABSL_GUARDED_BY(mutex) = 0;  // i_extra_isize
  std::array<uint8_t, kInodeBlockBytes> block_area
      ABSL_GUARDED_BY(mutex) = {};                  // i_block: extent root, symlink, device
  ExtentShape extent_shape ABSL_GUARDED_BY(mutex);  // of the tree below block_area
  // In-inode xattr bytes and unknown extra fields live in the inode-table buffer only; Write keeps them.
  BufferRef table_buffer ABSL_GUARDED_BY(mutex);  // the inode-table block; held for the life of the object
  uint32_t table_offset_bytes ABSL_GUARDED_BY(mutex) = 0;
  bool on_orphan_list ABSL_GUARDED_BY(mutex) = false;
  bool times_dirty ABSL_GUARDED_BY(mutex) = false;  // timestamps changed by an overwrite, not in a transaction yet
  bool deleted ABSL_GUARDED_BY(mutex) = false;      // freed on disk; the object only waits for its last reference

  std::atomic<uint32_t> dtime{0};  // i_dtime: deletion time, or the next orphan while on the orphan list

  // Durability (docs/flush_elision.md). Atomic: read on the sync path without `mutex`.
  std::atomic<TransactionId> sync_tid{0};      // last transaction with any change of this inode
  std::atomic<TransactionId> datasync_tid{0};  // last one that fdatasync must wait for: creation, size, mapping
  std::atomic<blockio::Ticket> need{blockio::kNoNeed};  // E2: maximum over completed writes

  // Data I/O state (write-behind, gate); has its own lock, inside `mutex` in the order.
  InodeIo io;

  // References beyond InodeRef that keep the inode alive: the user's lookups (FUSE nlookup).
  std::atomic<uint64_t> lookups{0};

  void RecordNeed(blockio::Ticket ticket) { blockio::RaiseTo(need, ticket); }
  // `datasync`: the change is one of those an fdatasync waits for.
  void JoinTransaction(TransactionId transaction, bool datasync) {
    sync_tid.store(transaction, std::memory_order_release);
    if (datasync) datasync_tid.store(transaction, std::memory_order_release);
  }

  bool IsDirectory() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return (mode & 0170000U) == 0040000U; }
  bool IsRegular() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return (mode & 0170000U) == 0100000U; }
  bool IsSymlink() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return (mode & 0170000U) == 0120000U; }
  bool HasExtents() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return (flags & kInodeExtents) != 0; }
};
using InodeRef = std::shared_ptr<Inode>;

}  // namespace elidefs::core
