#include "core/inode/inode_cache.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/inode/inode_store.h"

namespace elidefs::core {
namespace {

// How many of the least recently used inodes one call looks at: what it finds in use moves to the other end, so later
// calls get further.
constexpr int kEvictionProbes = 32;

}  // namespace

InodeCache::InodeCache(VolumeContext* context, size_t limit_inodes) : context_(context), limit_inodes_(limit_inodes) {}

absl::StatusOr<InodeRef> InodeCache::Get(InodeNumber number) {
  return Load(number, false);
}

absl::StatusOr<InodeRef> InodeCache::GetOrphan(InodeNumber number) {
  return Load(number, true);
}

absl::StatusOr<InodeRef> InodeCache::Load(InodeNumber number, bool allow_orphan) {
  const Geometry& geometry = context_->geometry;
  if (number > geometry.inode_count || (number < geometry.first_inode && number != kRootInode)) {
    return ErrnoError(ENOENT, absl::StrCat("inode ", number, " is not a user's inode"));
  }
  uint64_t load_id = 0;
  {
    MutexLock lock(mutex_);
    while (true) {
      const auto found = slots_.find(number);
      if (found == slots_.end()) break;
      if (found->second.inode != nullptr) {
        least_recently_used_.splice(least_recently_used_.begin(), least_recently_used_, found->second.position);
        return found->second.inode;
      }
      loaded_.Wait(mutex_);
    }
    load_id = ++last_load_id_;
    AddSlot(number).load_id = load_id;
  }

  absl::StatusOr<InodeRef> read = context_->inode_store->Read(number, allow_orphan);

  MutexLock lock(mutex_);
  loaded_.NotifyAll();
  const auto found = slots_.find(number);
  if (found != slots_.end() && found->second.inode != nullptr) return found->second.inode;  // created meanwhile
  const bool own_slot = found != slots_.end() && found->second.load_id == load_id;
  if (!read.ok()) {
    if (own_slot) RemoveSlot(number);
    return read.status();
  }
  // Created, deleted and dropped while the old state was read.
  if (!own_slot) return ErrnoError(ENOENT, absl::StrCat("inode ", number, " is free"));
  Inode& inode = **read;
  inode.RecordNeed(evicted_need_);
  inode.sync_tid.store(evicted_sync_tid_, std::memory_order_release);
  inode.datasync_tid.store(evicted_datasync_tid_, std::memory_order_release);
  {
    MutexLock io_lock(inode.io.mutex);
    inode.io.error_sequence = evicted_error_sequence_;
    inode.io.reported_error_sequence = evicted_error_sequence_;
    inode.io.last_error = evicted_error_;
  }
  found->second.inode = *read;
  EvictSome();
  return *std::move(read);
}

void InodeCache::Insert(const InodeRef& inode) {
  MutexLock lock(mutex_);
  if (slots_.contains(inode->number)) RemoveSlot(inode->number);
  AddSlot(inode->number).inode = inode;
  loaded_.NotifyAll();
  EvictSome();
}

void InodeCache::Use(const InodeRef& inode) {
  MutexLock lock(mutex_);
  inode->lookups.fetch_add(1, std::memory_order_acq_rel);
}

void InodeCache::Unuse(const InodeRef& inode, uint64_t count) {
  {
    MutexLock lock(mutex_);
    const uint64_t uses = inode->lookups.load(std::memory_order_acquire);
    const uint64_t left = uses > count ? uses - count : 0;  // a user who gives back too much harms only himself
    inode->lookups.store(left, std::memory_order_release);
    if (left != 0) return;
  }
  {
    MutexLock inode_lock(inode->mutex);
    if (inode->links != 0 || inode->deleted) return;
  }
  {
    MutexLock lock(mutex_);
    // Somebody may have come and gone since: the last one to leave reports, and only one.
    const auto found = slots_.find(inode->number);
    if (inode->lookups.load(std::memory_order_acquire) != 0 || found == slots_.end() || found->second.inode != inode ||
        found->second.unused_reported) {
      return;
    }
    found->second.unused_reported = true;
  }
  if (on_unused_) on_unused_(inode);
}

void InodeCache::Unuse(InodeNumber number, uint64_t count) {
  InodeRef inode;
  {
    MutexLock lock(mutex_);
    const auto found = slots_.find(number);
    if (found == slots_.end() || found->second.inode == nullptr) return;
    inode = found->second.inode;
  }
  Unuse(inode, count);
}

void InodeCache::Drop(const InodeRef& inode) {
  MutexLock lock(mutex_);
  const auto found = slots_.find(inode->number);
  if (found != slots_.end() && found->second.inode == inode) RemoveSlot(inode->number);
}

void InodeCache::Drop(InodeNumber number) {
  InodeRef dead;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = slots_.find(number);
  if (found == slots_.end() || found->second.inode == nullptr) return;
  dead = found->second.inode;
  // The number may have been given out again: a new object has uses from its creation on, and once these are gone it is
  // told apart by not being deleted.
  bool droppable = dead->lookups.load(std::memory_order_acquire) == 0;
  if (droppable && dead->mutex.TryLock()) {
    droppable = dead->deleted;
    dead->mutex.Unlock();
  }
  if (droppable) RemoveSlot(number);
}

size_t InodeCache::size() const {
  MutexLock lock(mutex_);
  return slots_.size();
}

std::vector<InodeRef> InodeCache::Snapshot() const {
  MutexLock lock(mutex_);
  std::vector<InodeRef> inodes;
  inodes.reserve(slots_.size());
  for (const auto& [number, slot] : slots_) {
    if (slot.inode != nullptr) inodes.push_back(slot.inode);
  }
  std::sort(inodes.begin(), inodes.end(), [](const InodeRef& a, const InodeRef& b) { return a->number < b->number; });
  return inodes;
}

InodeCache::Slot& InodeCache::AddSlot(InodeNumber number) {
  least_recently_used_.push_front(number);
  Slot& slot = slots_[number];
  slot.position = least_recently_used_.begin();
  return slot;
}

void InodeCache::RemoveSlot(InodeNumber number) {
  const auto found = slots_.find(number);
  least_recently_used_.erase(found->second.position);
  slots_.erase(found);
}

bool InodeCache::PrepareEviction(const InodeRef& inode) {
  // A reference that goes away releases what its holder wrote; taking and dropping one more here acquires all of that,
  // after which a count of one is the truth: new references come from slots_ only.
  InodeRef(inode).reset();
  if (inode.use_count() > 1 || inode->lookups.load(std::memory_order_acquire) != 0 || inode->io.Busy()) return false;
  if (!inode->mutex.TryLock()) return false;
  const bool held = inode->on_orphan_list || inode->times_dirty;
  inode->mutex.Unlock();
  if (held) return false;
  if (!context_->planted.forget_evicted_need) {
    evicted_need_ = std::max(evicted_need_, inode->need.load(std::memory_order_acquire));
  }
  evicted_sync_tid_ = std::max(evicted_sync_tid_, inode->sync_tid.load(std::memory_order_acquire));
  evicted_datasync_tid_ = std::max(evicted_datasync_tid_, inode->datasync_tid.load(std::memory_order_acquire));
  MutexLock io_lock(inode->io.mutex);
  if (inode->io.error_sequence > evicted_error_sequence_) {
    evicted_error_sequence_ = inode->io.error_sequence;
    evicted_error_ = inode->io.last_error;
  }
  return true;
}

void InodeCache::EvictSome() {
  for (int probe = 0; probe < kEvictionProbes && slots_.size() > limit_inodes_; ++probe) {
    const InodeNumber number = least_recently_used_.back();
    const auto found = slots_.find(number);
    if (found->second.inode != nullptr && PrepareEviction(found->second.inode)) {
      RemoveSlot(number);
    } else {
      least_recently_used_.splice(least_recently_used_.begin(), least_recently_used_, found->second.position);
    }
  }
}

}  // namespace elidefs::core
