// Journal::Impl: the state shared by handles (handle.cc), the commit thread (commit.cc), the checkpoint thread
// (checkpoint.cc) and flush completions (durable.cc).
//
// Locks: `mutex` is never held during I/O nor while calling out (waiters, on_durable, on_abort, the ledger). The
// journal superblock has its own lock, taken without `mutex`.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "core/journal/journal.h"
#include "core/journal/journal_superblock.h"
#include "core/journal/log_map.h"
#include "core/journal/transaction.h"

namespace elidefs::core {

struct Journal::Impl {
  Impl(blockio::RequestQueue* request_queue, BlockCache* block_cache, const Geometry& volume_geometry,
       JournalOptions journal_options)
      : queue(request_queue), cache(block_cache), geometry(volume_geometry), options(std::move(journal_options)) {}
  ~Impl();

  struct Tail {
    TransactionId id = 0;  // the oldest transaction that recovery needs
    uint32_t position = 0;
    blockio::Ticket need = blockio::kNoNeed;
  };
  // Keeps the flush waiter of a POST alive until the ledger is done with it.
  struct PostWaiter {
    blockio::FlushWaiter waiter;
    Impl* impl = nullptr;
  };

  // --- handle.cc
  absl::StatusOr<Transaction*> StartHandle(uint32_t credits, TransactionId* id) ABSL_LOCKS_EXCLUDED(mutex);
  void StopHandle(Transaction* transaction, uint32_t unused_credits) ABSL_LOCKS_EXCLUDED(mutex);
  bool ExtendHandle(Transaction* transaction, uint32_t credits) ABSL_LOCKS_EXCLUDED(mutex);
  void TakeCredit(Transaction* transaction, uint32_t* credits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void NoteChange(Transaction* transaction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Most log blocks that so many credits can take.
  uint64_t Footprint(uint64_t credits) const;
  uint64_t max_transaction_blocks() const { return (superblock->end() - superblock->first()) / 4; }

  // --- commit.cc
  void CommitThread() ABSL_LOCKS_EXCLUDED(mutex);
  bool CommitWanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool HasCommitWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The commit that a POST was left to is not coming after all.
  bool HasOrphanedPost() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void WaitForCommitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void CommitRunning() ABSL_LOCKS_EXCLUDED(mutex);
  // False: aborted meanwhile.
  bool CloseRunning() ABSL_LOCKS_EXCLUDED(mutex);
  void TakeSnapshot(Transaction* transaction) const;
  bool ReserveLog(Transaction* transaction) ABSL_LOCKS_EXCLUDED(mutex);
  [[nodiscard]] int WriteLogBlocks(const Transaction& transaction, blockio::Ticket* need);
  [[nodiscard]] int PreFlush(blockio::Ticket need) ABSL_LOCKS_EXCLUDED(mutex);
  [[nodiscard]] int WriteRecord(Transaction* transaction);
  void FinishRecord() ABSL_LOCKS_EXCLUDED(mutex);
  void DeliverDurable() ABSL_LOCKS_EXCLUDED(mutex);
  void WriteAbortToSuperblock() ABSL_LOCKS_EXCLUDED(mutex);

  // --- durable.cc
  CommitOutcome AskForCommit(CommitWaiter* waiter) ABSL_LOCKS_EXCLUDED(mutex);
  // Asks for the flush of every record that has none yet.
  void IssuePost() ABSL_LOCKS_EXCLUDED(mutex);
  static void PostDone(blockio::FlushWaiter* waiter);
  // Transactions whose record the ledger has made durable: released in order.
  void AdvanceDurable(blockio::Ticket proved = blockio::kNoNeed) ABSL_LOCKS_EXCLUDED(mutex);
  void MoveToLog(std::unique_ptr<Transaction> transaction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void DropCheckpointEntry(BlockNumber block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  InLogTransaction* FindInLog(TransactionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  static void RunWaiters(CommitWaiter* waiters, int error);
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void WakeCheckpoint() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // --- checkpoint.cc
  void CheckpointThread() ABSL_LOCKS_EXCLUDED(mutex);
  uint32_t LogCapacity() const { return superblock->end() - superblock->first(); }
  uint32_t DistanceInLog(uint32_t from, uint32_t to) const;
  uint32_t UsedLogBlocks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  uint32_t FreeLogBlocks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  uint32_t NextLogBlock(uint32_t log_block, uint32_t count) const;
  // Memory of copies that are not home yet.
  uint64_t RetainedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool SpaceIsShort() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Retires home writes and a tail that a flush has made durable. True if anything changed.
  bool SweepCheckpoint() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Tail TailCandidate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  std::vector<HomeWrite> PickHomeWrites(bool everything) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool BackgroundCheckpointDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // One step of forced or background checkpointing; false: nothing to do until something changes.
  bool CheckpointStep() ABSL_LOCKS_EXCLUDED(mutex);
  void WriteHome(std::vector<HomeWrite> writes) ABSL_LOCKS_EXCLUDED(mutex);
  void WriteTail(Tail tail) ABSL_LOCKS_EXCLUDED(mutex);
  // `count_it`: the flush is due to a lack of log space.
  bool ForceDurable(blockio::Ticket need, bool count_it) ABSL_LOCKS_EXCLUDED(mutex);

  // --- journal.cc
  absl::Status StartWriting() ABSL_LOCKS_EXCLUDED(mutex);
  absl::Status WipeLog();
  absl::Status Shutdown() ABSL_LOCKS_EXCLUDED(mutex);
  void StopThreads() ABSL_LOCKS_EXCLUDED(mutex);

  blockio::RequestQueue* const queue;
  BlockCache* const cache;
  const Geometry geometry;
  const JournalOptions options;
  LogMap log_map;
  std::unique_ptr<JournalSuperblock> superblock;

  // Known after Recover; constant once the threads run.
  bool recovered = false;
  bool wipe_needed = false;
  bool log_was_used = false;  // the superblock on disk may still point at an old log
  uint32_t next_sequence = 0;
  bool native_fua = false;
  uint32_t alignment_bytes = 4096;

  // The commit thread's own.
  uint64_t last_commit_time_ns = 0;
  blockio::Ticket last_record_need = blockio::kNoNeed;
  bool first_log_write = true;

  mutable Mutex mutex;
  CondVar start_cond;       // Start: closing ended, credits returned, space freed
  CondVar commit_cond;      // commit thread
  CondVar checkpoint_cond;  // checkpoint thread
  CondVar progress_cond;    // CommitBlocking, Shutdown, deliveries: durable, delivered, home writes ended

  bool writing ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;  // Shutdown began: no new handle
  bool stop_threads ABSL_GUARDED_BY(mutex) = false;
  bool drain_checkpoint ABSL_GUARDED_BY(mutex) = false;
  // Set by whoever wakes the checkpoint thread: what comes while it looks around is looked at again.
  bool checkpoint_wanted ABSL_GUARDED_BY(mutex) = true;
  bool aborted ABSL_GUARDED_BY(mutex) = false;
  bool abort_written ABSL_GUARDED_BY(mutex) = false;
  absl::Status abort_reason ABSL_GUARDED_BY(mutex);

  TransactionId next_id ABSL_GUARDED_BY(mutex) = 0;
  TransactionId requested ABSL_GUARDED_BY(mutex) = 0;  // commit everything up to this
  TransactionId durable ABSL_GUARDED_BY(mutex) = 0;
  TransactionId delivered ABSL_GUARDED_BY(mutex) = 0;
  std::unique_ptr<Transaction> running ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Transaction> committing ABSL_GUARDED_BY(mutex);
  std::deque<std::unique_ptr<Transaction>> recorded ABSL_GUARDED_BY(mutex);
  std::deque<Delivery> deliveries ABSL_GUARDED_BY(mutex);
  uint32_t posts_in_flight ABSL_GUARDED_BY(mutex) = 0;

  uint32_t head ABSL_GUARDED_BY(mutex) = 0;  // next free log block
  Tail tail ABSL_GUARDED_BY(mutex);          // durable: what lies before it may be overwritten
  std::optional<Tail> pending_tail ABSL_GUARDED_BY(mutex);
  std::deque<InLogTransaction> in_log ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<BlockNumber, CheckpointEntry> checkpoint ABSL_GUARDED_BY(mutex);
  absl::flat_hash_set<BlockNumber> writing_home ABSL_GUARDED_BY(mutex);
  std::deque<HomeWrite> written_home ABSL_GUARDED_BY(mutex);
  uint32_t space_waiters ABSL_GUARDED_BY(mutex) = 0;
  uint64_t space_wanted ABSL_GUARDED_BY(mutex) = 0;

  JournalStats stats ABSL_GUARDED_BY(mutex);
  Thread commit_thread;
  Thread checkpoint_thread;
};

}  // namespace elidefs::core
