#include "core/cache/block_cache.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kShardBits = 4;
constexpr uint32_t kShards = 1U << kShardBits;
constexpr uint64_t kMinShardBuffers = 8;
constexpr uint32_t kMaxAlignmentBytes = 4096;  // what O_DIRECT asks for at most: the logical sector of a 4Kn device
// Entries looked at per insertion into a full shard. Referenced ones are passed over, so unreferenced buffers take at
// most the larger of the limit and this fraction of the shard, at constant cost per insertion.
constexpr uint32_t kEvictionScan = 16;

}  // namespace

Buffer::Buffer(BlockNumber block_number, uint32_t size_bytes, uint32_t alignment_bytes)
    : block_number_(block_number),
      size_bytes_(size_bytes),
      data_(static_cast<uint8_t*>(::operator new(size_bytes, std::align_val_t(alignment_bytes))),
            FreeAligned{std::align_val_t(alignment_bytes)}) {}

struct BlockCache::Shard {
  struct Entry {
    BufferRef buffer;
    std::list<BlockNumber>::iterator position;
  };
  Mutex mutex;
  absl::flat_hash_map<BlockNumber, Entry> entries ABSL_GUARDED_BY(mutex);
  std::list<BlockNumber> recency ABSL_GUARDED_BY(mutex);  // most recently used first

  // Only the cache holds such a buffer. Exact under the mutex: new references are made from `entries` only, under it.
  static bool Unreferenced(const Entry& entry) { return entry.buffer.use_count() == 1; }

  void Evict(size_t limit_buffers, std::list<BufferRef>* victims) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (uint32_t scanned = 0; entries.size() > limit_buffers && scanned < kEvictionScan; ++scanned) {
      const auto oldest = std::prev(recency.end());
      const auto found = entries.find(*oldest);
      if (Unreferenced(found->second)) {
        victims->push_back(std::move(found->second.buffer));
        entries.erase(found);
        recency.erase(oldest);
      } else {
        recency.splice(recency.begin(), recency, oldest);
      }
    }
  }
};

BlockCache::BlockCache(blockio::RequestQueue* queue, uint32_t block_bytes, BlockNumber block_count,
                       uint64_t limit_bytes)
    : queue_(queue),
      block_bytes_(block_bytes),
      alignment_bytes_(
          std::max(std::min(block_bytes, kMaxAlignmentBytes), queue->capabilities().memory_alignment_bytes)),
      block_count_(block_count),
      shard_limit_bytes_(std::max<uint64_t>(limit_bytes / kShards, kMinShardBuffers * block_bytes)),
      shards_(new Shard[kShards]) {}

BlockCache::~BlockCache() = default;

BlockCache::Shard& BlockCache::ShardOf(BlockNumber block_number) const {
  return shards_[(block_number * 0x9E3779B97F4A7C15ULL) >> (64U - kShardBits)];
}

absl::Status BlockCache::CheckNumber(BlockNumber block_number) const {
  if (block_number < block_count_) return absl::OkStatus();
  return CorruptionError(absl::StrCat("block ", block_number, " lies beyond the volume's ", block_count_, " blocks"));
}

BufferRef BlockCache::FindOrInsert(BlockNumber block_number) {
  std::list<BufferRef> victims;  // freed after the lock
  Shard& shard = ShardOf(block_number);
  MutexLock lock(shard.mutex);
  const auto [found, inserted] = shard.entries.try_emplace(block_number);
  Shard::Entry& entry = found->second;
  if (!inserted) {
    shard.recency.splice(shard.recency.begin(), shard.recency, entry.position);
    return entry.buffer;
  }
  entry.buffer.reset(new Buffer(block_number, block_bytes_, alignment_bytes_));
  entry.position = shard.recency.insert(shard.recency.begin(), block_number);
  BufferRef buffer = entry.buffer;
  shard.Evict(shard_limit_bytes_ / block_bytes_, &victims);
  return buffer;
}

void BlockCache::Remove(const Buffer* buffer) {
  Shard& shard = ShardOf(buffer->block_number_);
  MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(buffer->block_number_);
  if (found == shard.entries.end() || found->second.buffer.get() != buffer) return;
  shard.recency.erase(found->second.position);
  shard.entries.erase(found);
}

absl::Status BlockCache::Load(Buffer& buffer, const Verifier& verify) {
  if (!buffer.loaded_.load(std::memory_order_relaxed)) {
    const int error = queue_->Read(buffer.block_number_ * block_bytes_, buffer.data(), block_bytes_);
    if (error != 0) {
      return ErrnoError(error, absl::StrCat("reading block ", buffer.block_number_, " failed: ", strerror(error)));
    }
  }
  if (verify && !buffer.verified_.load(std::memory_order_relaxed)) {
    ELIDEFS_RETURN_IF_ERROR(verify(buffer.bytes()));
    buffer.verified_.store(true, std::memory_order_relaxed);
  }
  buffer.loaded_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<BufferRef> BlockCache::Read(BlockNumber block_number, const Verifier& verify) {
  ELIDEFS_RETURN_IF_ERROR(CheckNumber(block_number));
  BufferRef buffer = FindOrInsert(block_number);
  if (buffer->loaded_.load(std::memory_order_acquire) &&
      (!verify || buffer->verified_.load(std::memory_order_acquire))) {
    return buffer;
  }
  MutexLock lock(buffer->load_mutex_);
  if (!buffer->load_error_.ok()) return buffer->load_error_;
  const bool was_loaded = buffer->loaded_.load(std::memory_order_relaxed);
  const absl::Status status = Load(*buffer, verify);
  if (status.ok()) return buffer;
  if (!was_loaded) {
    // Others that wait for this load take its error; whoever comes later finds nothing and tries anew.
    buffer->load_error_ = status;
    Remove(buffer.get());
  }
  return status;
}

absl::StatusOr<BufferRef> BlockCache::GetZeroed(BlockNumber block_number) {
  ELIDEFS_RETURN_IF_ERROR(CheckNumber(block_number));
  while (true) {
    BufferRef buffer = FindOrInsert(block_number);
    MutexLock lock(buffer->load_mutex_);
    if (!buffer->load_error_.ok()) continue;  // its loader has removed it
    std::memset(buffer->data(), 0, block_bytes_);
    buffer->verified_.store(true, std::memory_order_relaxed);
    buffer->loaded_.store(true, std::memory_order_release);
    return buffer;
  }
}

void BlockCache::Forget(BlockNumber block_number) {
  BufferRef dropped;
  Shard& shard = ShardOf(block_number);
  MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(block_number);
  if (found == shard.entries.end()) return;
  dropped = std::move(found->second.buffer);
  shard.recency.erase(found->second.position);
  shard.entries.erase(found);
}

void BlockCache::DropAll() {
  for (uint32_t i = 0; i < kShards; ++i) {
    MutexLock lock(shards_[i].mutex);
    shards_[i].entries.clear();
    shards_[i].recency.clear();
  }
}

}  // namespace elidefs::core
