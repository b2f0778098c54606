// Journal: jbd2 log of one volume: handles, group commit, checkpoint, recovery (D2, D3 and "Flushes of commits are
// elided too" in docs/flush_elision.md).
//
// How a change reaches the disk: an operation opens a Handle (a part of the running transaction), modifies buffers,
// tells the handle with Dirty, and closes it. A commit closes the running transaction to new handles, waits until its
// handles are closed, snapshots its buffers, lets a new transaction run, writes the log blocks, makes them and the
// ordered data durable (PRE), writes the record, and makes that durable (POST). A checkpoint writes the newest durable
// snapshot of each block home; then the log tail moves.
//
// Locks: a handle may be opened while inode locks are held, never the other way round. Nobody waits for a commit while
// holding a handle. Threads: thread-safe; a Handle is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "blockio/request_queue.h"
#include "core/cache/block_cache.h"
#include "core/geometry.h"
#include "core/planted_bugs.h"

namespace elidefs::core {

// Counts transactions of this mount and, in its low 32 bits, is the sequence number on disk. Never wraps in memory. 0:
// none.
using TransactionId = uint64_t;

class Journal;
struct Transaction;

// An open piece of the running transaction. Move-only; the destructor closes it. `credits` is the most distinct blocks
// the holder will dirty or revoke through it.
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();

  TransactionId transaction() const { return transaction_id_; }
  // `buffer` was or is about to be modified under this handle. Idempotent. Cancels a revoke of the block in this
  // transaction.
  void Dirty(const BufferRef& buffer);
  // The metadata block was freed: its older log copies must not be replayed. Also forgets it from the cache and from
  // this transaction's dirty set. The block becomes reusable through ReleaseWhenDurable like any other.
  void Revoke(BlockNumber block_number);
  // Blocks freed by this transaction: given to `JournalOptions::on_durable` once the transaction is durable.
  void ReleaseWhenDurable(BlockRange range);
  // A data write that this transaction's extents point to (D2): PRE covers it.
  void OrderAfter(blockio::Ticket need);
  // Asks for more credits within the same transaction; false when the transaction has no room: close this handle and
  // start another one at a point where the volume is consistent.
  [[nodiscard]] bool Extend(uint32_t credits);
  uint32_t credits_left() const { return credits_; }
  // Closes early.
  void Stop();

 private:
  friend class Journal;
  Journal* journal_ = nullptr;
  Transaction* running_ = nullptr;
  TransactionId transaction_id_ = 0;
  uint32_t credits_ = 0;
};

enum class CommitOutcome : uint8_t {
  kDurable,  // already; the waiter was not queued
  kJoined,   // a commit under way covers it
  kStarted,  // this call asked for the commit
  kAborted,  // the journal is aborted and the transaction was not durable; the waiter was not queued
};
// Intrusive; owned by the caller until `done` ran. `done` must not block.
struct CommitWaiter {
  TransactionId transaction = 0;
  int error = 0;  // 0 or EIO
  void (*done)(CommitWaiter* waiter) = nullptr;
  void* context = nullptr;
  CommitWaiter* next = nullptr;
};

struct JournalStats {
  uint64_t commits = 0;
  uint64_t commit_pre_elided = 0, commit_pre_joined = 0, commit_pre_issued = 0;
  uint64_t commit_post_elided = 0, commit_post_joined = 0, commit_post_issued = 0, commit_post_fua = 0;
  uint64_t logged_blocks = 0, revoked_blocks = 0;
  uint64_t checkpointed_blocks = 0, tail_updates = 0;
  uint64_t checkpoint_flushes_forced = 0;  // flushes issued because log space ran out
  TransactionId running = 0, durable = 0;
  uint32_t log_blocks = 0, log_blocks_used = 0;
  bool aborted = false;
  std::string abort_reason;
};

struct JournalOptions {
  std::vector<BlockRange> log_map;      // physical blocks of the journal inode in logical order
  uint32_t commit_interval_ms = 30000;  // the running transaction is committed at this age; 0: never by age
  // Called on the commit thread after a transaction became durable, with the blocks it freed, after no stale checkpoint
  // write of those blocks can happen any more. Must not wait for the journal.
  std::function<void(TransactionId, const std::vector<BlockRange>&)> on_durable;
  // Called with each block that recovery is about to write home; may change it. Empty: no change.
  std::function<void(BlockNumber block, uint8_t* bytes)> on_replay;
  // Called once, on any thread, when the journal aborts.
  std::function<void(const absl::Status& reason)> on_abort;
  PlantedBugs planted;
  Logger logger;
};

struct RecoveryResult {
  bool replayed = false;
  uint64_t transactions = 0, blocks = 0, revoked = 0;
  bool ended_on_bad_checksum = false;
  int journal_errno = 0;  // s_errno: the previous mount aborted
};

class Journal {
 public:
  // Reads and checks the journal superblock; EUCLEAN, or EOPNOTSUPP naming the feature and e2fsck (unknown features).
  static absl::StatusOr<std::unique_ptr<Journal>> Open(blockio::RequestQueue* queue, BlockCache* cache,
                                                       const Geometry& geometry, JournalOptions options);
  ~Journal();

  // Step 1 of a mount: replays committed transactions to their home blocks (v1/v2/v3 checksums, revokes, escapes) and
  // flushes. The log is not yet marked empty. The caller then drops its caches. `dry_run` replays into memory only:
  // `overlay` receives the newest content per block (for read-only mounts of a device that must not be written).
  // EUCLEAN when the log names blocks it must not touch, EOPNOTSUPP for FAST_COMMIT blocks that continue this log;
  // nothing is written then.
  absl::StatusOr<RecoveryResult> Recover(absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>* overlay);
  // Step 2, read-write: writes the journal superblock for an empty log that starts at s_first (features CSUM_V3, 64BIT
  // iff the volume has it; sequence continued, never reset) and starts the commit thread. The caller has made
  // needs_recovery durable before it opens the first handle.
  absl::Status StartWriting();

  // Opens a handle with room for `credits` blocks. Blocks while the running transaction is closing, is too large, or
  // the log lacks space (then it drives commit and checkpoint). EROFS after an abort.
  absl::StatusOr<Handle> Start(uint32_t credits);
  // The most credits one handle may ask for.
  uint32_t max_handle_credits() const;

  // fsync's step 1: the transaction (or an earlier running one) durable. Never blocks.
  CommitOutcome Commit(CommitWaiter* waiter);
  // Returns after `on_durable` ran for it, so that a caller that commits to get freed blocks back finds them. 0 or EIO.
  [[nodiscard]] int CommitBlocking(TransactionId transaction, CommitOutcome* outcome);
  bool IsDurable(TransactionId transaction) const;
  // The running transaction, or the newest one if none runs: waiting for it covers every closed handle.
  TransactionId Newest() const;

  // Commits everything, checkpoints everything, makes it durable and writes s_start = 0 (durable). The log is empty
  // afterwards and nothing may be started any more.
  absl::Status Shutdown();

  // A log write, a flush or a checkpoint write failed, or the caller found corruption: no further handle, waiters get
  // EIO, s_errno is written best effort. Idempotent. Never blocks for I/O on the calling thread.
  void Abort(const absl::Status& reason);
  bool aborted() const;
  absl::Status abort_reason() const;

  JournalStats Stats() const;

 private:
  friend class Handle;
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace elidefs::core
