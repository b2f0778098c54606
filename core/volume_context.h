// VolumeContext: what the parts of one mounted volume share. Owned by the Volume; everything in it outlives every part
// that is handed a pointer to it. No global state: several volumes live side by side in one process.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/worker_pool.h"
#include "blockio/request_queue.h"
#include "core/cache/block_cache.h"
#include "core/geometry.h"
#include "core/journal/journal.h"
#include "core/planted_bugs.h"

namespace elidefs::core {

class BlockAllocator;
class InodeAllocator;
class GroupTable;
class InodeStore;

struct VolumeContext {
  Geometry geometry;
  bool read_only = false;  // as mounted; `writable()` also looks at the journal
  PlantedBugs planted;
  Logger logger;

  std::unique_ptr<blockio::RequestQueue> queue;
  std::unique_ptr<BlockCache> cache;
  std::unique_ptr<Journal> journal;  // null on a read-only mount without replay needs
  std::unique_ptr<GroupTable> groups;
  std::unique_ptr<BlockAllocator> blocks;  // null when read-only
  std::unique_ptr<InodeAllocator> inodes;  // null when read-only
  std::unique_ptr<InodeStore> inode_store;
  // Read-only mounts: blocks that the log holds in a newer form than the device. Constant after the mount.
  absl::flat_hash_map<BlockNumber, BufferRef> replayed;
  Mutex xattr_mutex;  // reference counts of shared attribute blocks; inside inode mutex and handle
  // Last member: destroyed first, so that no task outlives what it uses.
  std::unique_ptr<WorkerPool> workers;

  bool writable() const { return !read_only && journal != nullptr && !journal->aborted(); }
  // Structure on the volume is wrong. Logs, applies errors= (default remount-ro: aborts the journal) and returns
  // `status`.
  std::function<absl::Status(absl::Status status)> on_corruption;
};

}  // namespace elidefs::core
