// Syncer: carries out fsync, fdatasync and directory fsync without holding a thread (D5).
//
// Steps: 0 wait for the inode's accepted writes; (fsync) put dirty timestamps into the transaction; decide; before it
// commits or flushes, wait a bounded time for other files' accepted writes so that one flush serves them all; 1 commit
// or join; 2 always then elide, join or issue a flush for the inode's need.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "core/data/data_path.h"
#include "core/data/dirty_times.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

struct SyncCounters {
  std::atomic<uint64_t> fdatasync_calls{0}, fsync_calls{0}, directory_calls{0}, o_sync_writes{0};
  std::atomic<uint64_t> elided{0}, joined_flush{0}, issued_flush{0}, joined_commit{0}, started_commit{0}, failed{0};
};

class Syncer {
 public:
  using Callback = absl::AnyInvocable<void(int error)>;

  Syncer(VolumeContext* context, DataPath* data_path, DirtyTimes* dirty_times, uint32_t group_wait_ms);

  // `callback` gets 0 or EIO. Deferred write errors are the File's business, not looked at here.
  void Sync(InodeRef inode, bool data_only, Callback callback);
  SyncCounters& counters() { return counters_; }
  const SyncCounters& counters() const { return counters_; }

 private:
  struct Operation;
  void Decide(const std::shared_ptr<Operation>& operation);
  void CommitThenFlush(const std::shared_ptr<Operation>& operation);
  void FlushStep(const std::shared_ptr<Operation>& operation);
  void Finish(const std::shared_ptr<Operation>& operation, int error);

  VolumeContext* const context_;
  DataPath* const data_path_;
  DirtyTimes* const dirty_times_;
  const uint32_t group_wait_ms_;
  SyncCounters counters_;
};

}  // namespace elidefs::core
