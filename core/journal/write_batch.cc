#include "core/journal/write_batch.h"

#include <algorithm>

namespace elidefs::core {
namespace {

// A bio that the device takes in one piece needs no splitting below.
size_t MaxBlocksPerBio(const DeviceCapabilities& capabilities, uint32_t block_bytes) {
  const size_t by_bytes = capabilities.max_transfer_bytes / block_bytes;
  return std::max<size_t>(1, std::min<size_t>(by_bytes, capabilities.max_segments));
}

}  // namespace

WriteBatch::WriteBatch(blockio::RequestQueue* queue, uint32_t block_bytes)
    : queue_(queue), block_bytes_(block_bytes), max_blocks_(MaxBlocksPerBio(queue->capabilities(), block_bytes)) {}

void WriteBatch::Add(BlockNumber block, const uint8_t* bytes) {
  const bool joins = !chunks_.empty() && chunks_.back().segments.size() < max_blocks_ &&
                     chunks_.back().first + chunks_.back().segments.size() == block;
  if (!joins) {
    chunks_.emplace_back();
    chunks_.back().first = block;
  }
  chunks_.back().segments.push_back({const_cast<uint8_t*>(bytes), block_bytes_});
}

int WriteBatch::Run(blockio::Ticket* need) {
  for (Chunk& chunk : chunks_) {
    chunk.bio.operation = Operation::kWrite;
    chunk.bio.offset_bytes = chunk.first * block_bytes_;
    chunk.bio.length_bytes = chunk.segments.size() * uint64_t{block_bytes_};
    chunk.bio.segments = chunk.segments.data();
    chunk.bio.segment_count = static_cast<uint32_t>(chunk.segments.size());
    chunk.bio.context = this;
    chunk.bio.end_io = [](blockio::Bio* bio) { static_cast<WriteBatch*>(bio->context)->Ended(*bio); };
  }
  if (chunks_.empty()) return 0;
  if (chunks_.size() == 1) {  // polls its own hardware queue (D6)
    const int error = queue_->SubmitAndWait(&chunks_.front().bio);
    *need = std::max(*need, chunks_.front().bio.need);
    return error;
  }
  {
    MutexLock lock(mutex_);
    pending_ = chunks_.size();
  }
  for (Chunk& chunk : chunks_) queue_->Submit(&chunk.bio);
  MutexLock lock(mutex_);
  while (pending_ > 0) all_ended_.Wait(mutex_);
  *need = std::max(*need, need_);
  return error_;
}

void WriteBatch::Ended(const blockio::Bio& bio) {
  MutexLock lock(mutex_);
  if (bio.error != 0 && error_ == 0) error_ = bio.error;
  need_ = std::max(need_, bio.need);
  // Notified under the lock: the batch lives on the waiter's stack.
  if (--pending_ == 0) all_ended_.NotifyAll();
}

}  // namespace elidefs::core
