// The checkpoint thread: newest durable copies go home, then the log tail moves, then log space is free again. Lazily
// when the log is half full (durability is taken from whatever flush comes by), by force when Start lacks space.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/journal/journal_impl.h"
#include "core/journal/write_batch.h"

namespace elidefs::core {
namespace {

constexpr size_t kRoundBlocks = 1024;
// Copies kept in memory for the checkpoint; beyond it the background checkpoint starts below half a log.
constexpr uint64_t kMaxRetainedBytes = 64ULL << 20U;

}  // namespace

uint32_t Journal::Impl::DistanceInLog(uint32_t from, uint32_t to) const {
  return to >= from ? to - from : LogCapacity() - (from - to);
}

uint32_t Journal::Impl::NextLogBlock(uint32_t log_block, uint32_t count) const {
  const uint32_t offset = (log_block - superblock->first() + count) % LogCapacity();
  return superblock->first() + offset;
}

uint32_t Journal::Impl::UsedLogBlocks() const {
  return DistanceInLog(tail.position, head);
}

// One block stays free, so that a full log differs from an empty one.
uint32_t Journal::Impl::FreeLogBlocks() const {
  return LogCapacity() - UsedLogBlocks() - 1;
}

bool Journal::Impl::SpaceIsShort() const {
  return space_waiters > 0 && FreeLogBlocks() < space_wanted;
}

uint64_t Journal::Impl::RetainedBytes() const {
  const size_t written = std::min(written_home.size(), checkpoint.size());
  return (checkpoint.size() - written) * uint64_t{geometry.block_bytes};
}

bool Journal::Impl::BackgroundCheckpointDue() const {
  return UsedLogBlocks() > LogCapacity() / 2 || RetainedBytes() > kMaxRetainedBytes;
}

bool Journal::Impl::SweepCheckpoint() {
  bool changed = false;
  blockio::FlushLedger& ledger = queue->ledger();
  while (!written_home.empty() &&
         (ledger.IsDurable(written_home.front().need) || options.planted.tail_before_checkpoint)) {
    const HomeWrite done = written_home.front();
    written_home.pop_front();
    changed = true;
    const auto entry = checkpoint.find(done.block);
    if (entry != checkpoint.end() && entry->second.id == done.id) DropCheckpointEntry(done.block);
  }
  while (!in_log.empty() && in_log.front().remaining == 0) {
    in_log.pop_front();
    changed = true;
  }
  if (pending_tail.has_value() && ledger.IsDurable(pending_tail->need)) {
    tail = *pending_tail;
    pending_tail.reset();
    changed = true;
    start_cond.NotifyAll();
  }
  return changed;
}

Journal::Impl::Tail Journal::Impl::TailCandidate() const {
  if (!in_log.empty()) return {in_log.front().id, in_log.front().log_start};
  if (!recorded.empty()) return {recorded.front()->id, recorded.front()->log_start};
  if (committing != nullptr) return {committing->id, committing->log_start};
  return {running != nullptr ? running->id : next_id, head};
}

std::vector<HomeWrite> Journal::Impl::PickHomeWrites(bool everything) {
  std::vector<HomeWrite> picked;
  const uint32_t keep = LogCapacity() / 4;
  const bool too_much_memory = RetainedBytes() > kMaxRetainedBytes;
  for (const InLogTransaction& transaction : in_log) {
    if (!everything && !too_much_memory && DistanceInLog(transaction.log_start, head) <= keep) break;
    if (transaction.remaining == 0) continue;
    for (const BlockNumber block : transaction.blocks) {
      const auto entry = checkpoint.find(block);
      if (entry == checkpoint.end() || entry->second.id != transaction.id) continue;
      if (entry->second.state != CheckpointEntry::State::kWaiting || writing_home.contains(block)) continue;
      picked.push_back({block, transaction.id});
      if (picked.size() == kRoundBlocks) return picked;
    }
  }
  return picked;
}

void Journal::Impl::CheckpointThread() {
  for (;;) {
    {
      MutexLock lock(mutex);
      while (!checkpoint_wanted && !stop_threads) checkpoint_cond.Wait(mutex);
      if (stop_threads) return;
      checkpoint_wanted = false;
    }
    while (CheckpointStep()) {
    }
  }
}

bool Journal::Impl::CheckpointStep() {
  std::vector<HomeWrite> writes;
  blockio::Ticket wait_for = blockio::kNoNeed;
  std::optional<Tail> new_tail;
  bool short_of_space = false;
  {
    MutexLock lock(mutex);
    if (stop_threads || aborted) return false;
    SweepCheckpoint();
    progress_cond.NotifyAll();
    short_of_space = SpaceIsShort();
    const bool forced = short_of_space || drain_checkpoint;
    if (forced || BackgroundCheckpointDue()) writes = PickHomeWrites(drain_checkpoint);
    if (writes.empty() && !pending_tail.has_value()) {
      const Tail candidate = TailCandidate();
      const uint32_t gain = DistanceInLog(tail.position, candidate.position);
      // The tail moves when everything picked is home, not in small steps; at the end Shutdown writes its own.
      const bool move = short_of_space ? gain > 0 && written_home.empty() : gain >= LogCapacity() / 8;
      if (move && !drain_checkpoint) new_tail = candidate;
    }
    if (writes.empty() && !new_tail.has_value()) {
      if (!forced) return false;
      if (!written_home.empty()) {
        wait_for = written_home.front().need;
        for (const HomeWrite& written : written_home) wait_for = std::max(wait_for, written.need);
      } else if (pending_tail.has_value() && short_of_space) {
        wait_for = pending_tail->need;
      } else {
        return false;  // a transaction has to become durable first
      }
    }
  }
  if (!writes.empty()) {
    WriteHome(std::move(writes));
  } else if (new_tail.has_value()) {
    WriteTail(*new_tail);
  } else {
    return ForceDurable(wait_for, short_of_space);
  }
  return true;
}

bool Journal::Impl::ForceDurable(blockio::Ticket need, bool count_it) {
  blockio::AwaitOutcome outcome = blockio::AwaitOutcome::kElided;
  if (queue->ledger().AwaitBlocking(need, &outcome) != 0) {
    Abort(ErrnoError(EIO, "a flush of the checkpoint failed"));
    return false;
  }
  if (outcome == blockio::AwaitOutcome::kIssued && count_it) {
    MutexLock lock(mutex);
    ++stats.checkpoint_flushes_forced;
  }
  AdvanceDurable();
  return true;
}

void Journal::Impl::WriteHome(std::vector<HomeWrite> writes) {
  std::sort(writes.begin(), writes.end(), [](const HomeWrite& a, const HomeWrite& b) { return a.block < b.block; });
  std::vector<AlignedBytes> bytes;  // keeps the copies alive if their entries are dropped meanwhile
  WriteBatch batch(queue, geometry.block_bytes);
  {
    MutexLock lock(mutex);
    std::vector<HomeWrite> current;
    for (const HomeWrite& write : writes) {
      const auto entry = checkpoint.find(write.block);
      if (entry == checkpoint.end() || entry->second.id != write.id) continue;  // revoked or superseded since
      entry->second.state = CheckpointEntry::State::kWriting;
      writing_home.insert(write.block);
      bytes.push_back(entry->second.bytes);
      current.push_back(write);
    }
    writes = std::move(current);
  }
  for (size_t i = 0; i < writes.size(); ++i) batch.Add(writes[i].block, bytes[i].get());
  blockio::Ticket need = blockio::kNoNeed;
  const int error = batch.Run(&need);
  std::vector<BufferRef> unpinned;  // dropped without the lock
  {
    MutexLock lock(mutex);
    for (HomeWrite& write : writes) {
      writing_home.erase(write.block);
      const auto entry = checkpoint.find(write.block);
      if (error != 0 || entry == checkpoint.end() || entry->second.id != write.id) continue;
      entry->second.state = CheckpointEntry::State::kWritten;
      entry->second.bytes.reset();
      unpinned.push_back(std::move(entry->second.buffer));
      write.need = need;
      written_home.push_back(write);
      ++stats.checkpointed_blocks;
    }
    progress_cond.NotifyAll();
  }
  if (error != 0) Abort(ErrnoError(EIO, "a checkpoint write failed"));
}

void Journal::Impl::WriteTail(Tail new_tail) {
  const int error = superblock->Write([&](JournalSuperBlock& raw) {
    raw.s_start = new_tail.position;
    raw.s_sequence = static_cast<uint32_t>(new_tail.id);
  });
  if (error != 0) return Abort(ErrnoError(EIO, "writing the journal superblock failed"));
  MutexLock lock(mutex);
  new_tail.need = superblock->need();
  pending_tail = new_tail;
  ++stats.tail_updates;
}

}  // namespace elidefs::core
