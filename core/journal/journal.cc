// Journal: open, recovery, start and end of writing, and the thin public wrappers.
#include "core/journal/journal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/journal/journal_impl.h"
#include "core/journal/recovery.h"
#include "core/journal/write_batch.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kWipeBlocks = 256;
// The upper half of the first transaction id, so that no id is ever 0.
constexpr TransactionId kFirstEpoch = TransactionId{1} << 32U;

struct BlockingCommit {
  CommitWaiter waiter;
  Mutex mutex;
  CondVar finished_cond;
  bool finished ABSL_GUARDED_BY(mutex) = false;
};

}  // namespace

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Journal::Impl::~Impl() {
  StopThreads();
  CommitWaiter* left = nullptr;
  {
    MutexLock lock(mutex);
    while (posts_in_flight > 0) progress_cond.Wait(mutex);
    aborted = true;  // not an event for on_abort: the owner is leaving
    const auto take = [&](Transaction* transaction) {
      if (transaction == nullptr) return;
      CommitWaiter** end = &transaction->waiters;
      while (*end != nullptr) end = &(*end)->next;
      *end = left;
      left = std::exchange(transaction->waiters, nullptr);
    };
    for (const auto& transaction : recorded) take(transaction.get());
    take(committing.get());
    take(running.get());
  }
  RunWaiters(left, EIO);
}

void Journal::Impl::StopThreads() {
  {
    MutexLock lock(mutex);
    stopping = true;
    stop_threads = true;
    WakeAll();
  }
  if (commit_thread.joinable()) commit_thread.Join();
  if (checkpoint_thread.joinable()) checkpoint_thread.Join();
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(blockio::RequestQueue* queue, BlockCache* cache,
                                                       const Geometry& geometry, JournalOptions options) {
  auto impl = std::make_unique<Impl>(queue, cache, geometry, std::move(options));
  ELIDEFS_ASSIGN_OR_RETURN(impl->log_map, LogMap::Create(impl->options.log_map, geometry.block_count));
  ELIDEFS_ASSIGN_OR_RETURN(impl->superblock, JournalSuperblock::Load(queue, impl->log_map, geometry));
  impl->next_sequence = impl->superblock->sequence();
  impl->log_was_used = impl->superblock->start() != 0;
  const DeviceCapabilities& capabilities = queue->capabilities();
  impl->native_fua = capabilities.native_fua && capabilities.volatile_write_cache;
  impl->alignment_bytes = std::max(512U, capabilities.memory_alignment_bytes);
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

absl::StatusOr<RecoveryResult> Journal::Recover(absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>* overlay) {
  RecoveryResult result;
  result.journal_errno = impl_->superblock->error_number();
  if (impl_->superblock->start() == 0) return result;
  Recovery recovery(impl_->queue, impl_->log_map, *impl_->superblock, impl_->geometry);
  ScanResult scan;
  ELIDEFS_RETURN_IF_ERROR(recovery.Scan(&scan));
  const std::vector<LoggedCopy> living = Recovery::LivingCopies(scan, &result.revoked);
  ELIDEFS_RETURN_IF_ERROR(recovery.Replay(living, impl_->options.on_replay, overlay));
  result.replayed = !scan.transactions.empty();
  result.transactions = scan.transactions.size();
  result.blocks = living.size();
  result.ended_on_bad_checksum = scan.ended_on_bad_checksum;
  if (overlay != nullptr) return result;
  impl_->recovered = true;
  impl_->wipe_needed = scan.ended_on_bad_checksum;
  impl_->last_commit_time_ns = scan.last_commit_time_ns;
  // The transaction after the last committed one may have left blocks in the log: its number is not used again.
  impl_->next_sequence = impl_->options.planted.reset_sequence ? 1U : scan.end_sequence + 1;
  return result;
}

absl::Status Journal::Impl::WipeLog() {
  // The old log must not be replayed once a part of it is gone.
  const int error = superblock->Write([&](JournalSuperBlock& raw) {
    raw.s_start = 0U;
    raw.s_sequence = next_sequence;
  });
  if (error != 0) return ErrnoError(error, "writing the journal superblock failed");
  if (const int flushed = queue->ledger().AwaitBlocking(superblock->need(), nullptr); flushed != 0) {
    return ErrnoError(flushed, "the flush before wiping the journal failed");
  }
  const AlignedBytes zeros = AllocateAligned(geometry.block_bytes, alignment_bytes);
  blockio::Ticket need = blockio::kNoNeed;
  for (uint32_t first = superblock->first(); first < superblock->end(); first += kWipeBlocks) {
    WriteBatch batch(queue, geometry.block_bytes);
    const uint32_t end = std::min(first + kWipeBlocks, superblock->end());
    for (uint32_t block = first; block < end; ++block) batch.Add(log_map.Physical(block), zeros.get());
    if (const int failed = batch.Run(&need); failed != 0) return ErrnoError(failed, "wiping the journal failed");
  }
  if (const int flushed = queue->ledger().AwaitBlocking(need, nullptr); flushed != 0) {
    return ErrnoError(flushed, "the flush after wiping the journal failed");
  }
  return absl::OkStatus();
}

absl::Status Journal::Impl::StartWriting() {
  if (log_was_used && !recovered) return ErrnoError(EINVAL, "the journal has to be replayed first");
  {
    MutexLock lock(mutex);
    if (writing) return ErrnoError(EINVAL, "the journal is already open for writing");
  }
  superblock->PrepareForWriting(geometry.has_64bit());
  if (wipe_needed) ELIDEFS_RETURN_IF_ERROR(WipeLog());
  const uint32_t first = superblock->first();
  const int error = superblock->Write([&](JournalSuperBlock& raw) {
    raw.s_start = first;
    raw.s_sequence = next_sequence;
  });
  if (error != 0) return ErrnoError(error, "writing the journal superblock failed");
  {
    MutexLock lock(mutex);
    next_id = kFirstEpoch | next_sequence;
    durable = delivered = requested = next_id - 1;
    head = first;
    tail = {next_id, first, blockio::kNoNeed};
    writing = true;
  }
  commit_thread = Thread("elidefs-commit", [this] { CommitThread(); });
  checkpoint_thread = Thread("elidefs-checkpt", [this] { CheckpointThread(); });
  return absl::OkStatus();
}

absl::Status Journal::Impl::Shutdown() {
  {
    MutexLock lock(mutex);
    if (!writing || stop_threads) return aborted ? abort_reason : absl::OkStatus();
    stopping = true;
    WakeAll();
    // `requested` may name a transaction whose handles are still open; closing waits for them.
    while (!aborted) {
      // A closing transaction is the commit thread's: its buffers may have moved to the snapshot already.
      const bool changed = running != nullptr && !running->closing && !running->empty();
      if (changed && requested < running->id) {
        requested = running->id;
        commit_cond.NotifyAll();
      }
      const bool idle = (running == nullptr || (!running->closing && !changed && running->open_handles == 0)) &&
                        committing == nullptr && recorded.empty() && deliveries.empty();
      if (idle) break;
      progress_cond.WaitFor(mutex, std::chrono::milliseconds(20));
    }
    drain_checkpoint = true;
    WakeCheckpoint();
    while (!aborted && (!in_log.empty() || !written_home.empty() || !writing_home.empty())) {
      progress_cond.Wait(mutex);
    }
    while (aborted && !abort_written) progress_cond.Wait(mutex);
  }
  StopThreads();
  uint32_t sequence = 0;
  {
    MutexLock lock(mutex);
    if (aborted) return abort_reason;
    sequence = static_cast<uint32_t>(running != nullptr ? running->id : next_id);
  }
  const int error = superblock->Write([&](JournalSuperBlock& raw) {
    raw.s_start = 0U;
    raw.s_sequence = sequence;
  });
  if (error != 0 || queue->ledger().AwaitBlocking(superblock->need(), nullptr) != 0) {
    absl::Status reason = ErrnoError(EIO, "marking the journal empty failed");
    Abort(reason);
    return reason;
  }
  return absl::OkStatus();
}

absl::Status Journal::StartWriting() {
  return impl_->StartWriting();
}
absl::Status Journal::Shutdown() {
  return impl_->Shutdown();
}
void Journal::Abort(const absl::Status& reason) {
  impl_->Abort(reason);
}
CommitOutcome Journal::Commit(CommitWaiter* waiter) {
  return impl_->AskForCommit(waiter);
}

absl::StatusOr<Handle> Journal::Start(uint32_t credits) {
  if (credits > max_handle_credits()) {
    return ErrnoError(ENOSPC, absl::StrCat(credits, " journal credits are more than the journal can give at once"));
  }
  Handle handle;
  ELIDEFS_ASSIGN_OR_RETURN(handle.running_, impl_->StartHandle(credits, &handle.transaction_id_));
  handle.journal_ = this;
  handle.credits_ = credits;
  return handle;
}

uint32_t Journal::max_handle_credits() const {
  return static_cast<uint32_t>(impl_->max_transaction_blocks() / 2);
}

int Journal::CommitBlocking(TransactionId transaction, CommitOutcome* outcome) {
  BlockingCommit blocking;
  blocking.waiter.transaction = transaction;
  blocking.waiter.context = &blocking;
  blocking.waiter.done = [](CommitWaiter* waiter) {
    auto* self = static_cast<BlockingCommit*>(waiter->context);
    MutexLock lock(self->mutex);
    self->finished = true;
    self->finished_cond.NotifyOne();  // under the lock: the sleeper owns the memory
  };
  const CommitOutcome result = impl_->AskForCommit(&blocking.waiter);
  if (outcome != nullptr) *outcome = result;
  if (result == CommitOutcome::kAborted) return EIO;
  if (result != CommitOutcome::kDurable) {
    MutexLock lock(blocking.mutex);
    while (!blocking.finished) blocking.finished_cond.Wait(blocking.mutex);
  }
  if (blocking.waiter.error != 0) return blocking.waiter.error;
  // A caller that commits to get freed blocks back finds them free.
  MutexLock lock(impl_->mutex);
  while (!impl_->aborted && impl_->delivered < std::min(transaction, impl_->durable)) {
    impl_->progress_cond.Wait(impl_->mutex);
  }
  return 0;
}

bool Journal::IsDurable(TransactionId transaction) const {
  MutexLock lock(impl_->mutex);
  if (transaction <= impl_->durable) return true;
  // An unchanged running transaction is as durable as its predecessor.
  const bool nothing_pending = impl_->committing == nullptr && impl_->recorded.empty();
  return nothing_pending && (impl_->running == nullptr || (!impl_->running->closing && impl_->running->empty()));
}

TransactionId Journal::Newest() const {
  MutexLock lock(impl_->mutex);
  return impl_->running != nullptr ? impl_->running->id : impl_->next_id - 1;
}

bool Journal::aborted() const {
  MutexLock lock(impl_->mutex);
  return impl_->aborted;
}

absl::Status Journal::abort_reason() const {
  MutexLock lock(impl_->mutex);
  return impl_->abort_reason;
}

JournalStats Journal::Stats() const {
  MutexLock lock(impl_->mutex);
  JournalStats stats = impl_->stats;
  stats.running = impl_->running != nullptr ? impl_->running->id : 0;
  stats.durable = impl_->durable;
  stats.log_blocks = impl_->LogCapacity();
  stats.log_blocks_used = impl_->writing ? impl_->UsedLogBlocks() : 0;
  stats.aborted = impl_->aborted;
  if (impl_->aborted) stats.abort_reason = std::string(impl_->abort_reason.message());
  return stats;
}

}  // namespace elidefs::core
