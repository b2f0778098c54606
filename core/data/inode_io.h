// InodeIo: the data I/O state of one inode: writes in flight, the gate that truncate closes, deferred errors.
// Details in core/data/data_path.h. Its lock is inside the inode's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "core/data/reservation.h"

namespace elidefs::core {

struct WriteOperation;

struct InodeIo {
  mutable Mutex mutex;
  CondVar idle;  // signalled whenever `reads_in_flight` reaches 0 or a write ends
  // Accepted writes whose extents and sizes are not in a transaction yet, by first block. They never share a block: a
  // write that touches a block of one of these waits in `deferred`.
  std::map<uint32_t, std::shared_ptr<WriteOperation>> writes ABSL_GUARDED_BY(mutex);
  std::set<uint64_t> sequences ABSL_GUARDED_BY(mutex);  // of `writes`
  uint64_t next_sequence ABSL_GUARDED_BY(mutex) = 1;
  uint32_t reads_in_flight ABSL_GUARDED_BY(mutex) = 0;
  uint32_t exclusive ABSL_GUARDED_BY(mutex) = 0;  // > 0: new reads and writes queue in `deferred`

  // Reads and writes that have to wait, in order of arrival. A task returns false when it has to wait again.
  std::deque<absl::AnyInvocable<bool()>> deferred ABSL_GUARDED_BY(mutex);
  bool wake_scheduled ABSL_GUARDED_BY(mutex) = false;
  bool wake_again ABSL_GUARDED_BY(mutex) = false;

  // Writes whose data completed, waiting for a worker that puts them into a transaction.
  std::vector<std::shared_ptr<WriteOperation>> ready ABSL_GUARDED_BY(mutex);
  bool finish_scheduled ABSL_GUARDED_BY(mutex) = false;

  struct Barrier {
    uint64_t sequence;  // fires when every write with a smaller sequence has ended
    absl::AnyInvocable<void()> fire;
  };
  std::vector<Barrier> barriers ABSL_GUARDED_BY(mutex);

  // Deferred write errors, as the kernel's errseq: each failure raises the counter; an open description reports when it
  // has not seen the newest one, a new description when nobody has.
  uint64_t error_sequence ABSL_GUARDED_BY(mutex) = 0;
  uint64_t reported_error_sequence ABSL_GUARDED_BY(mutex) = 0;
  int last_error ABSL_GUARDED_BY(mutex) = 0;

  Reservation reservation ABSL_GUARDED_BY(mutex);

  // True when eviction would lose something (rule E11).
  bool Busy() const ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    return !writes.empty() || reads_in_flight > 0 || exclusive > 0 || !deferred.empty() || !reservation.empty() ||
           error_sequence != reported_error_sequence;
  }
};

}  // namespace elidefs::core
