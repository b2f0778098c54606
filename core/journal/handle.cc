// Handles: credits, the running transaction's sets, and the waits of Start.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/journal/journal_impl.h"

namespace elidefs::core {

Handle::Handle(Handle&& other) noexcept
    : journal_(std::exchange(other.journal_, nullptr)),
      running_(std::exchange(other.running_, nullptr)),
      transaction_id_(std::exchange(other.transaction_id_, 0)),
      credits_(std::exchange(other.credits_, 0)) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    Stop();
    journal_ = std::exchange(other.journal_, nullptr);
    running_ = std::exchange(other.running_, nullptr);
    transaction_id_ = std::exchange(other.transaction_id_, 0);
    credits_ = std::exchange(other.credits_, 0);
  }
  return *this;
}

Handle::~Handle() {
  Stop();
}

void Handle::Stop() {
  if (journal_ == nullptr) return;
  journal_->impl_->StopHandle(running_, credits_);
  journal_ = nullptr;
  running_ = nullptr;
  credits_ = 0;
}

void Handle::Dirty(const BufferRef& buffer) {
  Journal::Impl& impl = *journal_->impl_;
  MutexLock lock(impl.mutex);
  const BlockNumber block = buffer->block_number();
  if (buffer->dirty_in_transaction_ == transaction_id_) {
    // Revoke resets the mark, so the block is still in the set.
    return;
  }
  const auto [entry, inserted] = running_->dirty.try_emplace(block, buffer);
  if (inserted) {
    // A cancelled revoke gives its credit to the block.
    if (running_->revoked.erase(block) == 0) impl.TakeCredit(running_, &credits_);
    impl.NoteChange(running_);
  } else {
    entry->second->dirty_in_transaction_ = 0;  // the block was forgotten and loaded into another buffer
    entry->second = buffer;
  }
  buffer->dirty_in_transaction_ = transaction_id_;
}

void Handle::Revoke(BlockNumber block_number) {
  Journal::Impl& impl = *journal_->impl_;
  {
    MutexLock lock(impl.mutex);
    bool was_dirty = false;
    if (const auto entry = running_->dirty.find(block_number); entry != running_->dirty.end()) {
      entry->second->dirty_in_transaction_ = 0;
      running_->dirty.erase(entry);
      was_dirty = true;
    }
    if (!impl.options.planted.skip_revoke && running_->revoked.insert(block_number).second && !was_dirty) {
      impl.TakeCredit(running_, &credits_);
    }
    impl.NoteChange(running_);
  }
  impl.cache->Forget(block_number);
}

void Handle::ReleaseWhenDurable(BlockRange range) {
  if (range.count == 0) return;
  Journal::Impl& impl = *journal_->impl_;
  MutexLock lock(impl.mutex);
  running_->released.push_back(range);
  impl.NoteChange(running_);
}

void Handle::OrderAfter(blockio::Ticket need) {
  MutexLock lock(journal_->impl_->mutex);
  running_->ordered_need = std::max(running_->ordered_need, need);
}

bool Handle::Extend(uint32_t credits) {
  if (!journal_->impl_->ExtendHandle(running_, credits)) return false;
  credits_ += credits;
  return true;
}

uint64_t Journal::Impl::Footprint(uint64_t credits) const {
  const uint32_t per_descriptor = superblock->format().TagsPerDescriptor();
  // A revoke record takes less than a block of its own; one block covers the last, partly filled revoke block.
  return credits + (credits + per_descriptor - 1) / per_descriptor + 2;
}

void Journal::Impl::TakeCredit(Transaction* transaction, uint32_t* credits) {
  if (*credits == 0) {
    // A caller's bug. The reserve of the log (three quarters of it) keeps the commit possible.
    options.logger.Error("a journal handle used more blocks than it asked for");
    return;
  }
  --*credits;
  --transaction->reserved;
}

void Journal::Impl::NoteChange(Transaction* transaction) {
  if (transaction->first_change != SteadyClock::time_point()) return;
  transaction->first_change = SteadyClock::now();
  if (options.commit_interval_ms != 0) commit_cond.NotifyAll();
}

absl::StatusOr<Transaction*> Journal::Impl::StartHandle(uint32_t credits, TransactionId* id) {
  MutexLock lock(mutex);
  for (;;) {
    if (aborted) return ErrnoError(EROFS, absl::StrCat("the journal is aborted: ", abort_reason.message()));
    if (!writing || stopping) return ErrnoError(EROFS, "the journal is not open for writing");
    if (running != nullptr && running->closing) {
      start_cond.Wait(mutex);
      continue;
    }
    if (running == nullptr) running = std::make_unique<Transaction>(next_id++);
    const uint64_t footprint = Footprint(running->claimed() + credits);
    if (footprint > max_transaction_blocks()) {
      // Too large: commit what is there, or wait for unused credits to come back.
      if (!running->empty() && requested < running->id) {
        requested = running->id;
        commit_cond.NotifyAll();
      }
      start_cond.Wait(mutex);
      continue;
    }
    if (footprint > FreeLogBlocks()) {
      ++space_waiters;
      space_wanted = std::max(space_wanted, footprint);
      WakeCheckpoint();
      start_cond.Wait(mutex);
      if (--space_waiters == 0) space_wanted = 0;
      continue;
    }
    running->reserved += credits;
    ++running->open_handles;
    *id = running->id;
    return running.get();
  }
}

void Journal::Impl::StopHandle(Transaction* transaction, uint32_t unused_credits) {
  MutexLock lock(mutex);
  transaction->reserved -= unused_credits;
  if (--transaction->open_handles == 0 && transaction->closing) commit_cond.NotifyAll();
  if (!transaction->closing) start_cond.NotifyAll();
}

bool Journal::Impl::ExtendHandle(Transaction* transaction, uint32_t credits) {
  MutexLock lock(mutex);
  if (aborted || transaction->closing) return false;
  const uint64_t footprint = Footprint(transaction->claimed() + credits);
  if (footprint > max_transaction_blocks() || footprint > FreeLogBlocks()) return false;
  transaction->reserved += credits;
  return true;
}

}  // namespace elidefs::core
