#include "core/journal/recovery.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/error.h"
#include "core/journal/write_batch.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kWindowBytes = 512U << 10U;
constexpr size_t kReplayBatchBlocks = 512;
constexpr uint16_t kFastCommitHeadTag = 9;  // Documentation/filesystems/ext4, "Fast Commits"

}  // namespace

LogReader::LogReader(blockio::RequestQueue* queue, const LogMap& log_map, uint32_t log_end, uint32_t block_bytes)
    : queue_(queue),
      log_map_(log_map),
      log_end_(log_end),
      block_bytes_(block_bytes),
      window_blocks_(std::max(1U, kWindowBytes / block_bytes)),
      window_(AllocateAligned(uint64_t{window_blocks_} * block_bytes,
                              std::max(4096U, queue->capabilities().memory_alignment_bytes))) {}

const uint8_t* LogReader::Read(uint32_t log_block) {
  if (log_block < window_first_ || log_block - window_first_ >= window_count_) {
    const uint32_t count = std::min({window_blocks_, log_end_ - log_block, log_map_.ContiguousFrom(log_block)});
    window_count_ = 0;
    const int error =
        queue_->Read(log_map_.Physical(log_block) * block_bytes_, window_.get(), uint64_t{count} * block_bytes_);
    if (error != 0) {
      error_ = error;
      return nullptr;
    }
    window_first_ = log_block;
    window_count_ = count;
  }
  return window_.get() + uint64_t{log_block - window_first_} * block_bytes_;
}

Recovery::Recovery(blockio::RequestQueue* queue, const LogMap& log_map, const JournalSuperblock& superblock,
                   const Geometry& geometry)
    : queue_(queue),
      log_map_(log_map),
      superblock_(superblock),
      geometry_(geometry),
      format_(superblock.format()),
      reader_(queue, log_map, superblock.max_length(), geometry.block_bytes) {}

void Recovery::Advance(Cursor* cursor) const {
  ++cursor->consumed;
  if (++cursor->position == superblock_.end()) cursor->position = superblock_.first();
}

absl::Status Recovery::Scan(ScanResult* result) {
  Cursor cursor;
  cursor.position = superblock_.start();
  cursor.sequence = superblock_.sequence();
  const uint32_t log_blocks = superblock_.end() - superblock_.first();
  Step step = Step::kContinue;
  // The bound ends a forged log that leads in a circle.
  while (step == Step::kContinue && cursor.consumed < log_blocks) step = ScanBlock(&cursor, result);
  if (step == Step::kError) return ErrnoError(reader_.error(), "cannot read the journal");
  result->end_sequence = cursor.sequence;
  ELIDEFS_RETURN_IF_ERROR(CheckTargets(*result));
  return CheckFastCommits(*result);
}

Recovery::Step Recovery::ScanBlock(Cursor* cursor, ScanResult* result) {
  const uint8_t* bytes = reader_.Read(cursor->position);
  if (bytes == nullptr) return Step::kError;
  const absl::Span<const uint8_t> block(bytes, geometry_.block_bytes);
  uint32_t type = 0;
  uint32_t sequence = 0;
  if (!HasJournalHeader(block, &type, &sequence)) {
    // Behind a torn descriptor its data blocks follow; none of them looks like a header, because logging escapes them.
    if (!cursor->damaged) return Step::kEnd;
    Advance(cursor);
    return Step::kContinue;
  }
  if (sequence != cursor->sequence) return Step::kEnd;
  switch (type) {
    case kJournalDescriptor:
      return ScanDescriptor(cursor);
    case kJournalCommit:
      return ScanCommit(cursor, result);
    case kJournalRevoke:
      if (!IsTailChecksumRight(format_, block) || !ParseRevoke(format_, block, &cursor->transaction.revoked)) {
        cursor->damaged = true;
      }
      Advance(cursor);
      return Step::kContinue;
    default:
      return Step::kEnd;
  }
}

Recovery::Step Recovery::ScanDescriptor(Cursor* cursor) {
  const uint8_t* bytes = reader_.Read(cursor->position);
  if (bytes == nullptr) return Step::kError;
  const absl::Span<const uint8_t> descriptor(bytes, geometry_.block_bytes);
  if (!IsTailChecksumRight(format_, descriptor)) {
    cursor->damaged = true;
    Advance(cursor);
    return Step::kContinue;
  }
  const std::vector<LogTag> tags = ParseDescriptor(format_, descriptor);
  const bool v1 = format_.checksum == LogChecksum::kV1;
  if (v1) cursor->v1_crc = Crc32BigEndian(cursor->v1_crc, descriptor);
  Advance(cursor);
  const uint32_t log_blocks = superblock_.end() - superblock_.first();
  for (const LogTag& tag : tags) {
    if (cursor->consumed >= log_blocks) return Step::kEnd;
    if (v1 || format_.has_block_checksums()) {
      const uint8_t* data = reader_.Read(cursor->position);
      if (data == nullptr) return Step::kError;
      const absl::Span<const uint8_t> logged(data, geometry_.block_bytes);
      if (v1) cursor->v1_crc = Crc32BigEndian(cursor->v1_crc, logged);
      if (!IsTagChecksumRight(format_, tag, cursor->sequence, logged)) cursor->damaged = true;
    }
    cursor->transaction.copies.push_back({tag.block, cursor->position, tag.escaped});
    Advance(cursor);
  }
  return Step::kContinue;
}

Recovery::Step Recovery::ScanCommit(Cursor* cursor, ScanResult* result) {
  const uint8_t* bytes = reader_.Read(cursor->position);
  if (bytes == nullptr) return Step::kError;
  const absl::Span<const uint8_t> block(bytes, geometry_.block_bytes);
  const bool v1_wrong = format_.checksum == LogChecksum::kV1 && !IsV1ChecksumRight(block, cursor->v1_crc);
  if (cursor->damaged || v1_wrong || !IsCommitChecksumRight(format_, block)) {
    result->ended_on_bad_checksum = true;
    return Step::kEnd;
  }
  result->last_commit_time_ns = std::max(result->last_commit_time_ns, CommitTimeNs(block));
  result->transactions.push_back(std::move(cursor->transaction));
  cursor->transaction = {};
  cursor->v1_crc = ~0U;
  ++cursor->sequence;
  Advance(cursor);
  return Step::kContinue;
}

absl::Status Recovery::CheckTargets(const ScanResult& result) const {
  for (const ScannedTransaction& transaction : result.transactions) {
    for (const LoggedCopy& copy : transaction.copies) {
      if (copy.block >= geometry_.block_count || log_map_.Contains(copy.block)) {
        return CorruptionError(absl::StrCat("the journal would overwrite block ", copy.block,
                                            ", which is outside the volume or part of the journal; run e2fsck"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Recovery::CheckFastCommits(const ScanResult& result) {
  // The kernel leaves one block between the log and the fast-commit area; older areas are never erased, so only one
  // that continues this very log counts.
  if (!superblock_.has_fast_commit() || superblock_.end() + 1 >= superblock_.max_length()) return absl::OkStatus();
  for (const uint32_t log_block : {superblock_.end(), superblock_.end() + 1}) {
    const uint8_t* bytes = reader_.Read(log_block);
    if (bytes == nullptr) return ErrnoError(reader_.error(), "cannot read the journal");
    Le16 tag;
    Le32 transaction;  // behind tag, length and the feature word
    std::memcpy(&tag, bytes, sizeof(tag));
    std::memcpy(&transaction, bytes + 8, sizeof(transaction));
    if (tag == kFastCommitHeadTag && transaction == result.end_sequence) {
      return ErrnoError(EOPNOTSUPP, "the journal holds fast commits, which are not replayed here; run e2fsck first");
    }
  }
  return absl::OkStatus();
}

std::vector<LoggedCopy> Recovery::LivingCopies(const ScanResult& scan, uint64_t* revoked) {
  // Transactions are numbered by their place in the log, so sequence numbers that wrap need no care. A record kills the
  // copies of its own transaction and of all earlier ones.
  absl::flat_hash_map<BlockNumber, size_t> last_revoke;
  for (size_t i = 0; i < scan.transactions.size(); ++i) {
    for (const BlockNumber block : scan.transactions[i].revoked) last_revoke[block] = i;
  }
  absl::flat_hash_map<BlockNumber, LoggedCopy> newest;
  *revoked = 0;
  for (size_t i = 0; i < scan.transactions.size(); ++i) {
    for (const LoggedCopy& copy : scan.transactions[i].copies) {
      const auto record = last_revoke.find(copy.block);
      if (record != last_revoke.end() && i <= record->second) {
        ++*revoked;
      } else {
        newest[copy.block] = copy;
      }
    }
  }
  std::vector<LoggedCopy> living;
  living.reserve(newest.size());
  for (const auto& [block, copy] : newest) living.push_back(copy);
  std::sort(living.begin(), living.end(), [](const LoggedCopy& a, const LoggedCopy& b) { return a.block < b.block; });
  return living;
}

absl::Status Recovery::Replay(const std::vector<LoggedCopy>& copies,
                              const std::function<void(BlockNumber, uint8_t*)>& change,
                              absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>* overlay) {
  const uint32_t block_bytes = geometry_.block_bytes;
  const Be32 magic = kJournalMagic;
  blockio::Ticket need = blockio::kNoNeed;
  const uint32_t alignment = std::max(4096U, queue_->capabilities().memory_alignment_bytes);
  for (size_t first = 0; first < copies.size(); first += kReplayBatchBlocks) {
    const size_t count = std::min(kReplayBatchBlocks, copies.size() - first);
    const AlignedBytes memory = AllocateAligned(count * block_bytes, alignment);
    WriteBatch batch(queue_, block_bytes);
    // Read in log order (the window pays off), written in block order.
    std::vector<size_t> by_log(count);
    for (size_t i = 0; i < count; ++i) by_log[i] = i;
    std::sort(by_log.begin(), by_log.end(),
              [&](size_t a, size_t b) { return copies[first + a].log_block < copies[first + b].log_block; });
    for (const size_t i : by_log) {
      const LoggedCopy& copy = copies[first + i];
      const uint8_t* logged = reader_.Read(copy.log_block);
      if (logged == nullptr) return ErrnoError(reader_.error(), "cannot read the journal");
      uint8_t* home = memory.get() + i * block_bytes;
      std::memcpy(home, logged, block_bytes);
      if (copy.escaped) std::memcpy(home, &magic, sizeof(magic));
      if (change) change(copy.block, home);
    }
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* home = memory.get() + i * block_bytes;
      if (overlay != nullptr) {
        (*overlay)[copies[first + i].block].assign(home, home + block_bytes);
      } else {
        batch.Add(copies[first + i].block, home);
      }
    }
    if (const int error = batch.Run(&need); error != 0) return ErrnoError(error, "journal replay failed");
  }
  if (overlay == nullptr && !copies.empty()) {
    if (const int error = queue_->ledger().AwaitBlocking(need, nullptr); error != 0) {
      return ErrnoError(error, "the flush after the journal replay failed");
    }
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
