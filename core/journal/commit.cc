// The commit thread (D3): close, snapshot, log blocks, PRE, record, POST. One transaction is written at a time; while
// it is, the next one runs, and the POST of one may be the PRE of the next.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/journal/journal_impl.h"
#include "core/journal/write_batch.h"

namespace elidefs::core {
namespace {

// A POST that was left to the next commit's PRE is issued after all if that commit waits this long for its handles.
constexpr std::chrono::milliseconds kDeferredPostPatience(2);
constexpr std::chrono::seconds kIdleWait(3600);
constexpr uint64_t kNanosecondsPerSecond = 1000000000;

}  // namespace

bool Journal::Impl::CommitWanted() const {
  if (running == nullptr || running->empty() || aborted) return false;
  if (requested >= running->id) return true;
  if (options.commit_interval_ms == 0) return false;
  return SteadyClock::now() - running->first_change >= std::chrono::milliseconds(options.commit_interval_ms);
}

bool Journal::Impl::HasCommitWork() const {
  return stop_threads || (aborted && !abort_written) || (!deliveries.empty() && !aborted) || CommitWanted() ||
         HasOrphanedPost();
}

bool Journal::Impl::HasOrphanedPost() const {
  return !aborted && !recorded.empty() && !recorded.back()->post_asked && !CommitWanted();
}

void Journal::Impl::WaitForCommitWork() {
  std::chrono::nanoseconds wait = kIdleWait;
  if (options.commit_interval_ms != 0 && running != nullptr && !running->empty() && !aborted) {
    const auto age = SteadyClock::now() - running->first_change;
    wait = std::chrono::milliseconds(options.commit_interval_ms) - age;
  }
  if (wait.count() > 0) commit_cond.WaitFor(mutex, wait);
}

void Journal::Impl::CommitThread() {
  for (;;) {
    DeliverDurable();
    bool write_abort = false;
    bool commit = false;
    {
      MutexLock lock(mutex);
      while (!HasCommitWork()) WaitForCommitWork();
      write_abort = aborted && !abort_written;
      if (stop_threads && !write_abort) return;
      commit = CommitWanted();
    }
    if (write_abort) {
      WriteAbortToSuperblock();
    } else if (commit) {
      CommitRunning();
    } else {
      IssuePost();
    }
  }
}

void Journal::Impl::WriteAbortToSuperblock() {
  // Best effort: the device may be the very thing that failed.
  if (superblock->Write([](JournalSuperBlock& raw) { raw.s_errno = static_cast<uint32_t>(-EIO); }) == 0) {
    (void)queue->ledger().AwaitBlocking(superblock->need(), nullptr);
  }
  MutexLock lock(mutex);
  abort_written = true;
  progress_cond.NotifyAll();
}

bool Journal::Impl::CloseRunning() {
  for (;;) {
    bool post_late = false;
    {
      MutexLock lock(mutex);
      running->closing = true;
      requested = std::max(requested, running->id);
      bool patience_over = false;
      while (running->open_handles > 0 && !aborted && deliveries.empty() && !patience_over) {
        const bool deferred = !recorded.empty() && !recorded.back()->post_asked;
        patience_over = !commit_cond.WaitFor(mutex, deferred ? kDeferredPostPatience : kIdleWait);
      }
      if (aborted) return false;
      if (running->open_handles == 0) return true;
      post_late = patience_over;
    }
    if (post_late) IssuePost();
    DeliverDurable();
  }
}

void Journal::Impl::TakeSnapshot(Transaction* transaction) const {
  transaction->snapshot.reserve(transaction->dirty.size());
  for (auto& [block, buffer] : transaction->dirty) {
    AlignedBytes bytes = AllocateAligned(geometry.block_bytes, alignment_bytes);
    std::memcpy(bytes.get(), buffer->data(), geometry.block_bytes);
    transaction->snapshot.push_back({block, std::move(buffer), std::move(bytes)});
  }
  transaction->dirty.clear();
  std::sort(transaction->snapshot.begin(), transaction->snapshot.end(),
            [](const SnapshotBlock& a, const SnapshotBlock& b) { return a.block < b.block; });
}

bool Journal::Impl::ReserveLog(Transaction* transaction) {
  const uint64_t tags = superblock->format().TagsPerDescriptor();
  const uint64_t revokes = superblock->format().RevokesPerBlock();
  const uint64_t blocks = transaction->snapshot.size() + (transaction->snapshot.size() + tags - 1) / tags +
                          (transaction->revoked.size() + revokes - 1) / revokes + 1;
  MutexLock lock(mutex);
  if (blocks > FreeLogBlocks()) return false;
  transaction->log_start = head;
  transaction->log_blocks = static_cast<uint32_t>(blocks);
  head = NextLogBlock(head, transaction->log_blocks);
  committing = std::move(running);
  // From here on a new transaction may run.
  start_cond.NotifyAll();
  return true;
}

int Journal::Impl::WriteLogBlocks(const Transaction& transaction, blockio::Ticket* need) {
  const LogFormat& format = superblock->format();
  const uint32_t sequence = static_cast<uint32_t>(transaction.id);
  WriteBatch batch(queue, geometry.block_bytes);
  std::vector<AlignedBytes> own;  // descriptors, revoke blocks and escaped copies, until the batch has ended
  uint32_t position = transaction.log_start;
  const auto add = [&](const uint8_t* bytes) {
    batch.Add(log_map.Physical(position), bytes);
    position = NextLogBlock(position, 1);
  };
  std::vector<BlockNumber> revoked(transaction.revoked.begin(), transaction.revoked.end());
  std::sort(revoked.begin(), revoked.end());
  for (size_t first = 0; first < revoked.size(); first += format.RevokesPerBlock()) {
    own.push_back(AllocateAligned(geometry.block_bytes, alignment_bytes));
    EncodeRevoke(format, sequence, absl::MakeConstSpan(revoked).subspan(first, format.RevokesPerBlock()),
                 own.back().get());
    add(own.back().get());
  }
  const Be32 magic = kJournalMagic;
  for (size_t first = 0; first < transaction.snapshot.size(); first += format.TagsPerDescriptor()) {
    const auto group = absl::MakeConstSpan(transaction.snapshot).subspan(first, format.TagsPerDescriptor());
    std::vector<LogTag> tags;
    std::vector<const uint8_t*> logged;
    for (const SnapshotBlock& copy : group) {
      LogTag tag;
      tag.block = copy.block;
      tag.escaped = std::memcmp(copy.bytes.get(), &magic, sizeof(magic)) == 0;
      const uint8_t* bytes = copy.bytes.get();
      if (tag.escaped) {
        own.push_back(AllocateAligned(geometry.block_bytes, alignment_bytes));
        std::memcpy(own.back().get() + sizeof(magic), bytes + sizeof(magic), geometry.block_bytes - sizeof(magic));
        bytes = own.back().get();
      }
      const uint8_t* summed = options.planted.checksum_before_escape ? copy.bytes.get() : bytes;
      tag.checksum = TagChecksum(format, sequence, {summed, geometry.block_bytes});
      tags.push_back(tag);
      logged.push_back(bytes);
    }
    own.push_back(AllocateAligned(geometry.block_bytes, alignment_bytes));
    EncodeDescriptor(format, sequence, tags, own.back().get());
    add(own.back().get());
    for (const uint8_t* bytes : logged) add(bytes);
  }
  // The record's place becomes zero with the log blocks, so that a cut cannot mix the record with what an earlier round
  // of the log left there: everything of it but the first sector is zero. e2fsck and the kernel take a record with a
  // wrong checksum for damage to the volume (docs/decisions/0015-records-do-not-tear.md).
  if (queue->capabilities().logical_block_bytes < geometry.block_bytes && !options.planted.record_may_tear) {
    own.push_back(AllocateAligned(geometry.block_bytes, alignment_bytes));
    add(own.back().get());
  }
  return batch.Run(need);
}

int Journal::Impl::PreFlush(blockio::Ticket need) {
  blockio::AwaitOutcome outcome = blockio::AwaitOutcome::kElided;
  const int error = queue->ledger().AwaitBlocking(need, &outcome);
  MutexLock lock(mutex);
  if (outcome == blockio::AwaitOutcome::kElided) ++stats.commit_pre_elided;
  if (outcome == blockio::AwaitOutcome::kJoined) ++stats.commit_pre_joined;
  if (outcome == blockio::AwaitOutcome::kIssued) ++stats.commit_pre_issued;
  return error;
}

int Journal::Impl::WriteRecord(Transaction* transaction) {
  const timespec now = TimeOfDay();
  const auto now_ns = static_cast<uint64_t>(now.tv_sec) * kNanosecondsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  last_commit_time_ns = std::max(last_commit_time_ns, now_ns);
  const AlignedBytes record = AllocateAligned(geometry.block_bytes, alignment_bytes);
  EncodeCommit(superblock->format(), static_cast<uint32_t>(transaction->id), last_commit_time_ns, record.get());
  const uint32_t position = NextLogBlock(transaction->log_start, transaction->log_blocks - 1);
  iovec segment{record.get(), geometry.block_bytes};
  blockio::Bio bio;
  bio.operation = Operation::kWrite;
  bio.flags = native_fua ? blockio::kBioFua : 0U;  // E6: elsewhere FUA would be a hidden flush
  bio.offset_bytes = log_map.Physical(position) * geometry.block_bytes;
  bio.length_bytes = geometry.block_bytes;
  bio.segments = &segment;
  bio.segment_count = 1;
  const int error = queue->SubmitAndWait(&bio);
  transaction->record_need = bio.need;
  return error;
}

void Journal::Impl::CommitRunning() {
  if (!CloseRunning()) return;
  Transaction* transaction = nullptr;
  {
    MutexLock lock(mutex);
    transaction = running.get();
  }
  // Without the lock: closed, and its buffers change only under a handle.
  TakeSnapshot(transaction);
  if (!ReserveLog(transaction)) return Abort(ErrnoError(EIO, "a transaction exceeds the journal"));
  if (first_log_write && log_was_used) {
    // The superblock on disk may still start a replay of the old log, which these blocks are about to overwrite.
    if (queue->ledger().AwaitBlocking(superblock->need(), nullptr) != 0) {
      return Abort(ErrnoError(EIO, "a flush before the first commit failed"));
    }
  }
  first_log_write = false;
  if (!transaction->revoked.empty() && superblock->SetRevokeFeature()) {
    if (superblock->Write([](JournalSuperBlock&) {}) != 0) {
      return Abort(ErrnoError(EIO, "writing the journal superblock failed"));
    }
  }
  blockio::Ticket log_need = blockio::kNoNeed;
  if (const int error = WriteLogBlocks(*transaction, &log_need); error != 0) {
    return Abort(ErrnoError(EIO, absl::StrCat("writing to the journal failed with errno ", error)));
  }
  blockio::Ticket need = std::max(transaction->ordered_need, superblock->need());
  // The record before this one has to be durable first (without native FUA): then this PRE is its POST.
  need = std::max(need, last_record_need);
  if (!options.planted.elide_pre_despite_log) need = std::max(need, log_need);
  if (!options.planted.commit_without_preflush && PreFlush(need) != 0) {
    return Abort(ErrnoError(EIO, "the flush before a commit record failed"));
  }
  AdvanceDurable();
  {
    MutexLock lock(mutex);
    if (aborted) return;
  }
  if (WriteRecord(transaction) != 0) return Abort(ErrnoError(EIO, "writing a commit record failed"));
  last_record_need = transaction->record_need;
  FinishRecord();
}

void Journal::Impl::FinishRecord() {
  bool leave_post_to_next = false;
  {
    MutexLock lock(mutex);
    if (aborted) return;
    Transaction* transaction = committing.get();
    ++stats.commits;
    stats.logged_blocks += transaction->snapshot.size();
    stats.revoked_blocks += transaction->revoked.size();
    if (transaction->record_need == blockio::kNoNeed) {
      transaction->post_asked = true;
      ++(native_fua ? stats.commit_post_fua : stats.commit_post_elided);
    }
    const bool nothing_to_ask = transaction->post_asked || !queue->ledger().has_volatile_cache();
    if (nothing_to_ask && !transaction->post_asked) ++stats.commit_post_elided;  // E9
    recorded.push_back(std::move(committing));
    leave_post_to_next = running != nullptr && !running->empty() && requested >= running->id;
    if (leave_post_to_next && !nothing_to_ask) ++stats.commit_post_joined;
  }
  AdvanceDurable();
  if (!leave_post_to_next) IssuePost();
}

void Journal::Impl::DeliverDurable() {
  for (;;) {
    Delivery delivery;
    {
      MutexLock lock(mutex);
      if (deliveries.empty() || aborted) return;
      delivery = std::move(deliveries.front());
      deliveries.pop_front();
      // A home write of a block that was freed may still be under way; it must not land on the block's next user.
      for (const BlockNumber block : delivery.revoked) {
        while (writing_home.contains(block) && !aborted) progress_cond.Wait(mutex);
      }
      if (aborted) return;
    }
    if (options.on_durable) options.on_durable(delivery.id, delivery.released);
    MutexLock lock(mutex);
    delivered = delivery.id;
    progress_cond.NotifyAll();
  }
}

}  // namespace elidefs::core
