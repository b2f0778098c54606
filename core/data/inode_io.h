// InodeIo: the data I/O state of one inode: writes in flight, the gate that truncate closes, deferred errors.
// Details in core/data/data_path.h. Its lock is inside the inode's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/mutex.h"

namespace elidefs::core {

struct WriteOperation;

struct InodeIo {
  mutable Mutex mutex;
  CondVar idle;  // signalled whenever `reads_in_flight` or the write list shrinks
  // Accepted writes whose extents and sizes are not in a transaction yet, in order of acceptance. The first ones are at the
  // device or being inserted; a later one that touches a block of an earlier one waits for it.
  std::deque<std::shared_ptr<WriteOperation>> writes ABSL_GUARDED_BY(mutex);
  uint64_t next_sequence ABSL_GUARDED_BY(mutex) = 1;
  uint32_t reads_in_flight ABSL_GUARDED_BY(mutex) = 0;
  uint32_t exclusive ABSL_GUARDED_BY(mutex) = 0;  // > 0: new reads and writes queue in `deferred`
  std::deque<absl::AnyInvocable<void()>> deferred ABSL_GUARDED_BY(mutex);
  struct Barrier {
    uint64_t sequence;  // fires when every write with a smaller sequence has ended
    absl::AnyInvocable<void()> fire;
  };
  std::vector<Barrier> barriers ABSL_GUARDED_BY(mutex);
  // Deferred write errors, as the kernel's errseq: each failure raises the counter; an open description reports when it has
  // not seen the newest one.
  uint64_t error_sequence ABSL_GUARDED_BY(mutex) = 0;
  int last_error ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace elidefs::core
