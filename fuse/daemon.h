// Daemon: what the operations of one mount share. libfuse hands it to each of them as user data.
//
// Ownership: owns the volume, the open files and the thread that drops what must not be dropped on a completion thread.
// Threads: everything is thread-safe unless it says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/worker_pool.h"
#include "elidefs/volume.h"
#include "fuse/daemon_log.h"
#include "fuse/fuse_api.h"

namespace elidefs::fuse {

// One open description; fuse_file_info::fh points to it. Alive while the kernel has it open or a request uses it.
struct OpenFile {
  std::unique_ptr<File> file;
  std::atomic<uint32_t> references{1};
};

class Daemon {
 public:
  Daemon(std::unique_ptr<Volume> volume, bool writeback_cache, DaemonLog* log);
  ~Daemon();  // Shutdown was called

  Volume& volume() { return *volume_; }
  bool writeback_cache() const { return writeback_cache_; }
  DaemonLog& log() { return *log_; }

  // Called once, before the first request.
  void SetSession(fuse_session* session) { session_ = session; }

  OpenFile* AddFile(std::unique_ptr<File> file);
  // The kernel's RELEASE, on a thread that may block.
  void ReleaseFile(OpenFile* file);

  // Makes the kernel read the range again: its cached pages hold data that a failed writeback did not store.
  void InvalidateLater(uint64_t node, uint64_t offset_bytes, uint64_t length_bytes);

  // The volume went read-only before the kernel wrote back what it had acknowledged to the writers of this file. Like
  // the files whose flush failed (E4) it answers EIO to every sync until the next mount; the kernel alone would do so
  // once.
  void WritebackLost(uint64_t node);
  bool HasLostWriteback(uint64_t node) const;

  // After the session's loop: waits for requests in flight, drops open files (the kernel gives none back when a mount
  // is aborted, and drops RELEASEs that were queued at unmount) and closes the volume. Not thread-safe.
  absl::Status Shutdown();

 private:
  friend class PendingReply;
  void RequestStarted() { in_flight_.fetch_add(1, std::memory_order_relaxed); }
  void RequestFinished();
  // `file` has lost its last reference on a completion thread, where a File must not be destroyed.
  void DestroyLater(OpenFile* file);

  std::unique_ptr<Volume> volume_;
  const bool writeback_cache_;
  DaemonLog* const log_;
  fuse_session* session_ = nullptr;
  std::atomic<uint32_t> in_flight_{0};
  mutable Mutex mutex_;
  absl::flat_hash_set<OpenFile*> files_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> any_writeback_lost_{false};  // so that a sync takes no lock while all is well
  absl::flat_hash_set<uint64_t> lost_writeback_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<WorkerPool> worker_;  // one thread; never the one that completes I/O
};

// A request that is answered from a callback (rule D5). Keeps the daemon and the open file alive; answers EIO if it is
// destroyed unanswered, since the kernel's caller would wait for ever. Every answering method answers at most once.
class PendingReply {
 public:
  PendingReply(Daemon* daemon, fuse_req_t request, OpenFile* file);
  PendingReply(PendingReply&& other) noexcept;
  PendingReply(const PendingReply&) = delete;
  PendingReply& operator=(PendingReply&&) = delete;
  ~PendingReply();

  Daemon& daemon() { return *daemon_; }
  void Error(int error);  // 0: success; goes through ReplyErrno
  void Data(absl::Span<const uint8_t> data);
  void Written(size_t bytes);

 private:
  fuse_req_t Take();
  void Finish();

  Daemon* daemon_;
  fuse_req_t request_;  // nullptr once answered
  OpenFile* file_;
};

inline Daemon& DaemonOf(fuse_req_t request) {
  return *static_cast<Daemon*>(fuse_req_userdata(request));
}

// FUSE calls the root 1; ext4's inode 1 holds the bad blocks and is in no directory, its root is 2. Node 2 is never
// given to the kernel and maps to inode 1, which the volume refuses.
inline InodeId InodeOf(fuse_ino_t node) {
  if (node == FUSE_ROOT_ID) return kRootInodeId;
  return node == kRootInodeId ? FUSE_ROOT_ID : node;
}
inline fuse_ino_t NodeOf(InodeId inode) {
  return inode == kRootInodeId ? FUSE_ROOT_ID : inode;
}

}  // namespace elidefs::fuse
