// WriteBatch: many block writes at once, waited for together. Log blocks and checkpoint writes go through it.
//
// Ownership: the bytes stay the caller's until Run returned. Threads: built and run by one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/mutex.h"
#include "blockio/request_queue.h"
#include "core/geometry.h"

namespace elidefs::core {

class WriteBatch {
 public:
  WriteBatch(blockio::RequestQueue* queue, uint32_t block_bytes);
  WriteBatch(const WriteBatch&) = delete;
  WriteBatch& operator=(const WriteBatch&) = delete;

  // Joined with the block added before when the two are neighbours on the volume.
  void Add(BlockNumber block, const uint8_t* bytes);
  // Submits all and waits. 0 or the first errno; `need` is raised to the greatest need of the batch (E2).
  [[nodiscard]] int Run(blockio::Ticket* need) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Chunk {
    blockio::Bio bio;
    BlockNumber first = 0;
    std::vector<iovec> segments;
  };
  void Ended(const blockio::Bio& bio) ABSL_LOCKS_EXCLUDED(mutex_);

  blockio::RequestQueue* const queue_;
  const uint32_t block_bytes_;
  const size_t max_blocks_;
  std::deque<Chunk> chunks_;

  Mutex mutex_;
  CondVar all_ended_;
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  int error_ ABSL_GUARDED_BY(mutex_) = 0;
  blockio::Ticket need_ ABSL_GUARDED_BY(mutex_) = blockio::kNoNeed;
};

}  // namespace elidefs::core
