// JournalSuperblock: block 0 of the log, read and checked once, then rewritten with a checksum each time.
//
// Ownership: keeps the whole block, so what lies beyond the 1024 bytes and every field that is not ours is preserved.
// Threads: Write is thread-safe (writes are serialised); the const accessors describe the block as it was loaded,
// except where noted, and are meant for the time before the commit thread starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "blockio/request_queue.h"
#include "core/geometry.h"
#include "core/journal/aligned_bytes.h"
#include "core/journal/log_format.h"
#include "core/journal/log_map.h"

namespace elidefs::core {

class JournalSuperblock {
 public:
  // EUCLEAN for anything impossible; EOPNOTSUPP for unknown features, naming e2fsck.
  static absl::StatusOr<std::unique_ptr<JournalSuperblock>> Load(blockio::RequestQueue* queue, const LogMap& log_map,
                                                                 const Geometry& geometry);

  uint32_t first() const { return first_; }  // first log block
  uint32_t end() const { return end_; }      // one past the last; the fast-commit area, if any, lies beyond
  uint32_t max_length() const { return max_length_; }
  uint32_t sequence() const { return sequence_; }
  uint32_t start() const { return start_; }
  int error_number() const { return error_number_; }  // s_errno, negative when set
  bool has_fast_commit() const { return has_fast_commit_; }
  // As the log on disk is encoded until PrepareForWriting.
  const LogFormat& format() const { return format_; }

  // Only on an empty log: CSUM_V3, 64BIT iff the volume has it, nothing of v1/v2; a version-1 superblock becomes
  // version 2. Changes memory only; the next Write carries it.
  void PrepareForWriting(bool volume_is_64bit) ABSL_LOCKS_EXCLUDED(mutex_);
  // True once: the caller has to Write before the first record with a revoke.
  bool SetRevokeFeature() ABSL_LOCKS_EXCLUDED(mutex_);
  // Applies `change`, checksums and writes. 0 or errno. Blocks for the device.
  [[nodiscard]] int Write(absl::FunctionRef<void(JournalSuperBlock&)> change) ABSL_LOCKS_EXCLUDED(mutex_);
  // Need of the newest write (E2).
  blockio::Ticket need() const { return need_.load(std::memory_order_acquire); }

 private:
  JournalSuperblock(blockio::RequestQueue* queue, BlockNumber block, AlignedBytes bytes, uint32_t block_bytes);
  absl::Status Check(const LogMap& log_map);
  absl::Status CheckFeatures();

  blockio::RequestQueue* const queue_;
  const BlockNumber block_;
  const uint32_t block_bytes_;
  uint32_t first_ = 0, end_ = 0, max_length_ = 0, sequence_ = 0, start_ = 0;
  int error_number_ = 0;
  bool has_fast_commit_ = false;
  LogFormat format_;
  std::atomic<blockio::Ticket> need_{blockio::kNoNeed};

  Mutex mutex_;  // held while the block is written
  const AlignedBytes bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace elidefs::core
