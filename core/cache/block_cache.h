// BlockCache: metadata blocks in memory. Data blocks of regular files never enter it.
//
// Ownership: Buffers are shared by count (BufferRef); the cache keeps unreferenced ones up to a byte bound and drops
// the least recently used of them. A referenced buffer is never dropped, so one block number has one live Buffer unless
// Forget or DropAll came between. A buffer that belongs to a transaction or awaits its checkpoint is held by the
// journal and so cannot be evicted: a later read can never see an older block from the device. Threads: the cache is
// thread-safe. The bytes of a buffer are protected by the lock of the object they describe (inode, group) and are
// modified only while a journal handle is open (core/journal/journal.h); so a commit, which snapshots when no handle is
// open, never sees half a change.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "blockio/request_queue.h"
#include "core/geometry.h"

namespace elidefs::core {

class Buffer {
 public:
  BlockNumber block_number() const { return block_number_; }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  uint32_t size_bytes() const { return size_bytes_; }
  absl::Span<const uint8_t> bytes() const { return {data_.get(), size_bytes_}; }
  template <typename T>
  T* As(size_t offset_bytes = 0) {
    return reinterpret_cast<T*>(data_.get() + offset_bytes);
  }

 private:
  friend class BlockCache;
  friend class Journal;
  friend class Handle;
  struct FreeAligned {
    std::align_val_t alignment;
    void operator()(uint8_t* bytes) const { ::operator delete(bytes, alignment); }
  };
  Buffer(BlockNumber block_number, uint32_t size_bytes, uint32_t alignment_bytes);

  const BlockNumber block_number_;
  const uint32_t size_bytes_;
  std::unique_ptr<uint8_t[], FreeAligned> data_;          // aligned for O_DIRECT
  Mutex load_mutex_;                                      // held while the block is read from the device and verified
  absl::Status load_error_ ABSL_GUARDED_BY(load_mutex_);  // the load failed; the cache has dropped this object
  std::atomic<bool> loaded_{false};
  std::atomic<bool> verified_{false};
  // Owned by the journal (its own lock): the running transaction this buffer is dirty in, 0 if none.
  uint64_t dirty_in_transaction_ = 0;
};
using BufferRef = std::shared_ptr<Buffer>;

class BlockCache {
 public:
  // Checks a block that just came from the device (checksum, structure). Runs once per load, not per Read.
  using Verifier = std::function<absl::Status(absl::Span<const uint8_t> bytes)>;

  BlockCache(blockio::RequestQueue* queue, uint32_t block_bytes, BlockNumber block_count, uint64_t limit_bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // The block, from memory or the device. Blocks the caller. EIO, EUCLEAN (verifier), EUCLEAN for a number off the
  // volume. A failed load leaves nothing behind; concurrent readers of one block share one load and its error. `verify`
  // may be null: then the first Read with a verifier checks, at a time when nobody else may be modifying the bytes.
  absl::StatusOr<BufferRef> Read(BlockNumber block_number, const Verifier& verify);
  // A block whose old content does not matter: all zero, loaded, verified. Used for newly allocated metadata.
  absl::StatusOr<BufferRef> GetZeroed(BlockNumber block_number);
  // Drops the cached copy of a freed block; later reads load again. Existing references stay usable.
  void Forget(BlockNumber block_number);
  // Drops everything (after replay). Nothing may be referenced by a transaction.
  void DropAll();

  uint32_t block_bytes() const { return block_bytes_; }

 private:
  struct Shard;
  Shard& ShardOf(BlockNumber block_number) const;
  // The block's buffer, made (not loaded) if there is none.
  BufferRef FindOrInsert(BlockNumber block_number);
  // Drops the block if its buffer is still this one.
  void Remove(const Buffer* buffer);
  absl::Status Load(Buffer& buffer, const Verifier& verify) ABSL_EXCLUSIVE_LOCKS_REQUIRED(buffer.load_mutex_);
  absl::Status CheckNumber(BlockNumber block_number) const;

  blockio::RequestQueue* const queue_;
  const uint32_t block_bytes_;
  const uint32_t alignment_bytes_;
  const BlockNumber block_count_;
  const uint64_t shard_limit_bytes_;
  std::unique_ptr<Shard[]> shards_;
};

}  // namespace elidefs::core
