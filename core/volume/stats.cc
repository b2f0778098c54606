// Volume::Stats: gathers the counters of all layers.
#include "core/volume/volume_impl.h"

namespace elidefs::core {

VolumeStats VolumeImpl::Stats() const {
  VolumeStats stats;
  const SyncCounters& syncs = syncer_->counters();
  const auto load = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  stats.syncs.fdatasync_calls = load(syncs.fdatasync_calls);
  stats.syncs.fsync_calls = load(syncs.fsync_calls);
  stats.syncs.directory_calls = load(syncs.directory_calls);
  stats.syncs.o_sync_writes = load(syncs.o_sync_writes);
  stats.syncs.elided = load(syncs.elided);
  stats.syncs.joined_flush = load(syncs.joined_flush);
  stats.syncs.issued_flush = load(syncs.issued_flush);
  stats.syncs.joined_commit = load(syncs.joined_commit);
  stats.syncs.started_commit = load(syncs.started_commit);
  stats.syncs.failed = load(syncs.failed);

  const blockio::QueueStats queue = context_.queue->Stats();
  const DeviceCapabilities& capabilities = context_.queue->capabilities();
  stats.flushes.requested = queue.flush.requested;
  stats.flushes.issued = queue.flush.issued;
  stats.flushes.elided = queue.flush.elided;
  stats.flushes.joined = queue.flush.joined;
  stats.flushes.failed = queue.flush.failed_flushes;
  stats.flushes.durable_ticket = queue.flush.durable;
  stats.flushes.device_has_volatile_cache = queue.flush.has_volatile_cache;
  stats.flushes.native_fua = capabilities.native_fua;
  stats.flushes.leaf_failed = queue.flush.failed;
  for (const blockio::HardwareQueueStats& from : queue.hardware_queues) {
    stats.queues.push_back(
        {from.depth, from.in_flight, from.dispatched, from.completed, from.flushes_submitted, from.flush_index});
  }
  stats.read_bytes = queue.read_bytes;
  stats.written_bytes = queue.written_bytes;
  stats.device_errors = queue.errors;

  if (context_.journal != nullptr) {
    const JournalStats journal = context_.journal->Stats();
    stats.commits.commits = journal.commits;
    stats.commits.pre_elided = journal.commit_pre_elided;
    stats.commits.pre_joined = journal.commit_pre_joined;
    stats.commits.pre_issued = journal.commit_pre_issued;
    stats.commits.post_elided = journal.commit_post_elided;
    stats.commits.post_joined = journal.commit_post_joined;
    stats.commits.post_issued = journal.commit_post_issued;
    stats.commits.post_fua = journal.commit_post_fua;
    stats.commits.logged_blocks = journal.logged_blocks;
    stats.commits.revoked_blocks = journal.revoked_blocks;
    stats.commits.checkpointed_blocks = journal.checkpointed_blocks;
    stats.commits.log_blocks = journal.log_blocks;
    stats.commits.log_blocks_used = journal.log_blocks_used;
    // The low half is the number in the log.
    stats.commits.running_transaction = static_cast<uint32_t>(journal.running);
    stats.commits.durable_transaction = static_cast<uint32_t>(journal.durable);
  }
  stats.cached_inodes = inode_cache_->size();
  stats.write_behind_bytes_now = data_path_->write_behind_bytes_now();
  stats.read_only = read_only();
  MutexLock lock(failure_mutex_);
  stats.read_only_reason = read_only_reason_;
  return stats;
}

}  // namespace elidefs::core
