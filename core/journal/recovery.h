// Recovery: what a mount does with a log that is not empty. Scan (which transactions are complete and right), revoke
// (which of their copies are dead), replay (the newest living copy of each block goes home).
//
// Nothing is written before the whole scan has succeeded, data-block checksums included, and everything is idempotent,
// so an interrupted recovery can be repeated. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "blockio/request_queue.h"
#include "core/geometry.h"
#include "core/journal/aligned_bytes.h"
#include "core/journal/journal_superblock.h"
#include "core/journal/log_map.h"

namespace elidefs::core {

// Reads log blocks in order with read-ahead.
class LogReader {
 public:
  LogReader(blockio::RequestQueue* queue, const LogMap& log_map, uint32_t log_end, uint32_t block_bytes);
  // The block stays valid until the next call. Null on an I/O error, kept in error().
  const uint8_t* Read(uint32_t log_block);
  int error() const { return error_; }

 private:
  blockio::RequestQueue* const queue_;
  const LogMap& log_map_;
  const uint32_t log_end_;
  const uint32_t block_bytes_;
  const uint32_t window_blocks_;
  AlignedBytes window_;
  uint32_t window_first_ = 0;
  uint32_t window_count_ = 0;
  int error_ = 0;
};

struct LoggedCopy {
  BlockNumber block = 0;
  uint32_t log_block = 0;
  bool escaped = false;
};
struct ScannedTransaction {
  std::vector<LoggedCopy> copies;
  std::vector<BlockNumber> revoked;
};
struct ScanResult {
  std::vector<ScannedTransaction> transactions;  // complete ones, oldest first
  uint32_t end_sequence = 0;                     // the first sequence that is not committed
  bool ended_on_bad_checksum = false;
  uint64_t last_commit_time_ns = 0;
};

class Recovery {
 public:
  // Everything is borrowed.
  Recovery(blockio::RequestQueue* queue, const LogMap& log_map, const JournalSuperblock& superblock,
           const Geometry& geometry);

  // EIO; EUCLEAN when a committed transaction names a block outside the volume or inside the journal; EOPNOTSUPP when
  // fast commits that belong to this log would be lost.
  absl::Status Scan(ScanResult* result);
  // Living copies only, the newest per block, in block order. `revoked` counts copies that a revoke record killed.
  static std::vector<LoggedCopy> LivingCopies(const ScanResult& scan, uint64_t* revoked);
  // Writes the copies home and makes them durable, or fills `overlay` when it is not null. `change`: see
  // JournalOptions::on_replay.
  absl::Status Replay(const std::vector<LoggedCopy>& copies, const std::function<void(BlockNumber, uint8_t*)>& change,
                      absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>* overlay);

 private:
  enum class Step : uint8_t { kContinue, kEnd, kError };
  struct Cursor {
    uint32_t position = 0;
    uint32_t consumed = 0;
    uint32_t sequence = 0;
    bool damaged = false;  // a checksum of the transaction under the cursor is wrong
    uint32_t v1_crc = ~0U;
    ScannedTransaction transaction;
  };
  void Advance(Cursor* cursor) const;
  Step ScanBlock(Cursor* cursor, ScanResult* result);
  Step ScanDescriptor(Cursor* cursor);
  Step ScanCommit(Cursor* cursor, ScanResult* result);
  absl::Status CheckTargets(const ScanResult& result) const;
  absl::Status CheckFastCommits(const ScanResult& result);

  blockio::RequestQueue* const queue_;
  const LogMap& log_map_;
  const JournalSuperblock& superblock_;
  const Geometry& geometry_;
  const LogFormat format_;
  LogReader reader_;
};

}  // namespace elidefs::core
