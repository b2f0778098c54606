// InodeCache: at most one Inode object per inode number; remembers what eviction would otherwise lose (rule E11).
//
// Use counts: `Inode::lookups` counts the user's lookups and open Files together. While it is above zero the inode
// stays. An inode without uses stays cached up to a bound; evicting it raises the ledger-wide maxima (need, transaction
// ids) with which inodes read from disk start. Threads: thread-safe. Its lock is a leaf: no I/O under it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

class InodeCache {
 public:
  InodeCache(VolumeContext* context, size_t limit_inodes);

  // The object, from memory or disk (InodeStore::Read). ENOENT for free inodes, reserved ones other than the root, and
  // inodes without links that nobody uses.
  absl::StatusOr<InodeRef> Get(InodeNumber number);
  // As Get for inodes on the orphan list (links may be 0).
  absl::StatusOr<InodeRef> GetOrphan(InodeNumber number);
  // Enters a newly created inode; replaces a dead object of the same number.
  void Insert(const InodeRef& inode);

  // +1 use.
  void Use(const InodeRef& inode);
  // -count uses. When none are left and the inode has no links, `on_unused` (set once at start) is called without
  // locks, once in the life of the object; it must schedule the deletion elsewhere.
  void Unuse(const InodeRef& inode, uint64_t count) ABSL_LOCKS_EXCLUDED(inode->mutex);
  void Unuse(InodeNumber number, uint64_t count);
  void set_on_unused(std::function<void(InodeRef)> on_unused) { on_unused_ = std::move(on_unused); }
  // The object leaves the cache after its inode was freed on disk. A newer object of the same number stays.
  void Drop(const InodeRef& inode);
  void Drop(InodeNumber number);

  size_t size() const;
  // Every cached inode (unmount, statistics).
  std::vector<InodeRef> Snapshot() const;

 private:
  struct Slot {
    InodeRef inode;  // null while a thread loads it
    std::list<InodeNumber>::iterator position;
    uint64_t load_id = 0;  // of that load
    bool unused_reported = false;
  };
  absl::StatusOr<InodeRef> Load(InodeNumber number, bool allow_orphan);
  // An empty slot at the recently used end; there is none for this number yet.
  Slot& AddSlot(InodeNumber number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveSlot(InodeNumber number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the maxima over from an inode that may be evicted; false when it may not.
  bool PrepareEviction(const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  VolumeContext* const context_;
  const size_t limit_inodes_;
  std::function<void(InodeRef)> on_unused_;

  mutable Mutex mutex_;
  CondVar loaded_;
  absl::flat_hash_map<InodeNumber, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::list<InodeNumber> least_recently_used_ ABSL_GUARDED_BY(mutex_);  // front: used last
  uint64_t last_load_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // E11: maxima over evicted inodes.
  blockio::Ticket evicted_need_ ABSL_GUARDED_BY(mutex_) = blockio::kNoNeed;
  TransactionId evicted_sync_tid_ ABSL_GUARDED_BY(mutex_) = 0;
  TransactionId evicted_datasync_tid_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_error_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int evicted_error_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace elidefs::core
