// ExtentTree: logical to physical mapping of one inode, in the format of Documentation/filesystems/ext4 ("Extent
// Tree"), any depth. Stateless over the inode's block_area and the BlockCache; the inode's mutex is held by the caller.
// Every node read is checked (magic, depth, order, ranges inside the volume and outside system blocks, checksum).
//
// Whatever the order of insertions, conversions and truncates, a tree made here is as narrow and as low as e2fsck wants
// it (extent_shape.h: the criterion and why it can be met): full nodes pass entries on to neighbours, the level gets a
// node when it is full, and loses one when there is a node's worth of unused entries. A change writes the nodes of its
// path, new ones, and at one level a window of neighbours, bounded by the block size. An append to a full last leaf
// leaves it and its neighbours alone. Where the journal lacks room for a window the tree stays wider, until a later
// change near that place finds room. The rule needs a count over the whole tree, made once for each inode in memory
// when first a node below the root is full or loses entries.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

// What `Lookup` found at a logical block: a mapped run or a hole, `length` blocks long from the block asked for (a
// hole's length reaches to the next extent or to the end of the address space).
struct Mapping {
  LogicalBlock logical = 0;
  uint32_t length = 0;
  BlockNumber physical = 0;  // 0: hole
  bool unwritten = false;

  bool is_hole() const { return physical == 0; }
};

class ExtentTree {
 public:
  // A named local variable tells the thread-safety analysis that the tree's inode is the locked one.
  ExtentTree(VolumeContext* context, Inode* inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex)
      ABSL_ASSERT_EXCLUSIVE_LOCK(inode_->mutex)
      : context_(context), inode_(inode) {}

  // An empty root into inode.block_area.
  static void InitializeRoot(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

  absl::StatusOr<Mapping> Lookup(LogicalBlock logical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Reads what a change at `logical` may have to know about the whole tree, once per inode in memory. To be called
  // before the change's handle is opened, because an open handle keeps every commit of the volume waiting. What cannot
  // be read is the change's to report.
  void PrepareInsert(LogicalBlock logical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  void PrepareTruncate(LogicalBlock first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Inserts a written (or unwritten) extent over a hole, at most 32768 (32767) blocks; merges with adjacent extents of
  // the same kind, splits nodes, grows the tree. Updates blocks_512 for metadata blocks and for the extent; the blocks
  // themselves are the caller's (BlockAllocator::Commit). Writes tree blocks and block_area; the caller then writes the
  // inode. `promised` says that the caller promised InsertPromiseBlocks() for node allocation.
  absl::Status Insert(Handle& handle, LogicalBlock logical, BlockNumber physical, uint32_t length, bool unwritten,
                      bool promised) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Turns unwritten blocks into written ones (after their data completed); written ones stay. InsertCredits() cover
  // what lies in one extent; for each further one the handle is extended, and EAGAIN tells that this failed half-way
  // (calling again is harmless). EINVAL: a hole.
  absl::Status ConvertToWritten(Handle& handle, LogicalBlock logical, uint32_t length, bool promised)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Unmaps from the end of the file downwards until `first` is reached or the handle runs low on credits; frees blocks
  // and empty nodes (BlockAllocator::Free, revoking nodes). Returns true when done, false when the caller must start
  // another handle and call again. The tree is consistent in between (orphan list makes truncate restartable).
  absl::StatusOr<bool> TruncateFrom(Handle& handle, LogicalBlock first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Visits every extent from `first` on, in order, until the visitor returns false. The one that holds `first` is cut
  // to begin there. The visitor must not change the tree.
  absl::Status ForEach(LogicalBlock first, const std::function<bool(const Mapping&)>& visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);

  // Worst-case credits of one Insert or ConvertToWritten at the current depth (tree blocks, their bitmaps and
  // descriptors; not the inode, not the data blocks' bitmaps). A window that takes more extends the handle or is
  // done without.
  uint32_t InsertCredits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Worst-case new tree blocks of one Insert.
  uint32_t InsertPromiseBlocks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // What TruncateFrom leaves in the handle for its caller: the inode, and the orphan list.
  static constexpr uint32_t kCallerCredits = 4;
  static constexpr uint32_t kTruncateCredits = 64;  // what TruncateFrom wants to see in a handle to make progress

 private:
  VolumeContext* const context_;
  Inode* const inode_;
};

// Reads of block-mapped (ext3-style) files: direct, indirect, double, triple. Writes to them are refused (EOPNOTSUPP).
absl::StatusOr<Mapping> LookupBlockMap(VolumeContext* context, Inode& inode, LogicalBlock logical)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

// The mapping of an inode of either kind.
absl::StatusOr<Mapping> LookupMapping(VolumeContext* context, Inode& inode, LogicalBlock logical)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

}  // namespace elidefs::core
