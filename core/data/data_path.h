// DataPath: reads and writes of regular files between the user's buffers and the block layer (D2, D5, D7).
//
// A write, in words: it is accepted under the inode's mutex (mapping looked up, holes get reserved blocks, size moves
// in memory, the operation joins InodeIo::writes), its bios start at once, and it is acknowledged while the volume
// holds fewer than write_behind_bytes, otherwise when the device answered. Each bio's completion records its need on
// the inode (E2). When the last one is in, a write that changed neither mapping nor size on disk ends there; any other
// is finished by a worker: one handle commits the reserved blocks, inserts or converts the extents and moves disk_size
// (D2). Only then does the operation leave the list, so that fdatasync's step 0 can wait for it.
//   A write that touches a block of an operation still on the list waits, not yet acknowledged, until that one has
//   ended:
// sub-block writes to one block are serialised and a mapping is never looked up half-inserted. So do reads.
//   Truncate and deletion close the gate (Exclusive) and wait until the inode's list and reads are empty.
//
// Threads: thread-safe. No call waits for the device except Exclusive, which only truncate and deletion use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "core/data/buffer_pool.h"
#include "core/data/dirty_times.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

struct WriteOperation;

class DataPath {
 public:
  using ReadCallback = absl::AnyInvocable<void(int error, absl::Span<const uint8_t> data)>;
  using WriteCallback = absl::AnyInvocable<void(int error, size_t written_bytes)>;

  struct Options {
    uint64_t write_behind_bytes = 32U << 20U;
  };
  DataPath(VolumeContext* context, DirtyTimes* dirty_times, Options options);
  ~DataPath();

  void Read(InodeRef inode, uint64_t offset_bytes, size_t length_bytes, ReadCallback callback);
  struct WriteOptions {
    bool append = false;      // at the end of file as of acceptance
    bool late = false;        // acknowledged when the operation has ended (O_SYNC)
    bool privileged = false;  // may use reserved blocks
    bool keep_times = false;
  };
  void Write(InodeRef inode, uint64_t offset_bytes, absl::Span<const uint8_t> data, const WriteOptions& options,
             WriteCallback callback);

  // Runs `done` when every write of `inode` accepted so far has ended (fdatasync step 0); possibly at once.
  void AfterAcceptedWrites(const InodeRef& inode, absl::AnyInvocable<void()> done);
  // Runs `done` when every write of the volume accepted so far has ended, or after `timeout_ms`: lets one flush or
  // commit serve writes to other files that were acknowledged before this sync.
  void AfterVolumeWrites(uint32_t timeout_ms, absl::AnyInvocable<void()> done);

  // Closes the gate of one inode and waits until nothing is in flight; the destructor opens it. Taken without the
  // inode's mutex.
  class Exclusive {
   public:
    Exclusive(DataPath* data_path, InodeRef inode);
    ~Exclusive();
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

   private:
    DataPath* const data_path_;
    const InodeRef inode_;
  };

  // Zeroes the block bytes behind `size_bytes` on the device if the block is mapped, written and not zero there.
  // Blocking; no write to that block is in flight. The need is recorded on the inode: a handle that depends on the
  // zeroes is ordered after it.
  absl::Status ZeroTail(Inode& inode, uint64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

  // Makes blocks usable that nobody needs but that are not free yet: the windows of open files, what deletions that
  // were announced before the call free, what writes accepted before it were promised, and blocks whose freeing
  // transaction is not durable. False if there was nothing to wait for. Blocking; the caller holds no lock and is no
  // worker.
  bool ReclaimSpace();
  // The deletion of an inode without uses, from the moment it is due; whoever finds the volume full waits for its end.
  class Deletion {
   public:
    explicit Deletion(DataPath* data_path);
    ~Deletion();
    Deletion(const Deletion&) = delete;
    Deletion& operator=(const Deletion&) = delete;

   private:
    DataPath* const data_path_;
    uint64_t number_;
  };
  // Freed blocks became usable, or never will (abort): writes that wait for space try again.
  void SpaceFreed();
  // Acknowledged writes that failed later, over all files: what Volume::Flush has to report.
  uint64_t deferred_errors() const { return deferred_errors_.load(std::memory_order_acquire); }

  // Gives the inode's unused preallocated blocks back (last close, truncate, eviction).
  void ReleaseWindow(const InodeRef& inode);
  // Waits until no write of the volume is under way. New ones may start meanwhile.
  void Drain();

  // The maximum need over all data writes so far: what Volume::Flush has to make durable.
  blockio::Ticket newest_need() const { return newest_need_.load(std::memory_order_acquire); }
  uint64_t write_behind_bytes_now() const { return outstanding_bytes_.load(std::memory_order_relaxed); }

 private:
  struct ReadOperation;
  struct VolumeBarrier;
  struct Run;

  // Stages of a write, in order (write_accept.cc, write_device.cc, write_finish.cc). Accept returns false when the
  // operation has to wait; `queued` says that it comes from the deferred queue.
  bool Accept(const std::shared_ptr<WriteOperation>& operation, bool queued);
  absl::Status MapWrite(Inode& inode, WriteOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  absl::Status MapHole(Inode& inode, WriteOperation& operation, LogicalBlock logical, uint32_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  absl::StatusOr<BlockRange> TakeBlocks(Inode& inode, LogicalBlock logical, uint32_t count, bool privileged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void UndoMapping(WriteOperation& operation);
  void RetryWhenSpaceIsFreed(const std::shared_ptr<WriteOperation>& operation);
  void CommitToFreeSpace();
  bool MoreSpaceIsComing();
  absl::Status CleanTail(Inode& inode, LogicalBlock first_block_written) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void Admit(Inode& inode, const std::shared_ptr<WriteOperation>& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void BuildImage(WriteOperation& operation, absl::Span<const uint8_t> data);
  void StartDevice(const std::shared_ptr<WriteOperation>& operation);
  void ReadAround(const std::shared_ptr<WriteOperation>& operation);
  void SubmitWrites(const std::shared_ptr<WriteOperation>& operation);
  void DeviceDone(const std::shared_ptr<WriteOperation>& operation);
  void ScheduleFinish(const std::shared_ptr<WriteOperation>& operation);
  void FinishReady(const InodeRef& inode);
  absl::Status FinishRun(Inode& inode, const Run& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  absl::Status FinishPiece(Inode& inode, const Run& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  absl::Status EnterTransaction(Handle& handle, Inode& inode, const Run& run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void End(const std::shared_ptr<WriteOperation>& operation, int error);
  void EndOnVolume(const WriteOperation& operation);
  bool StartRead(const std::shared_ptr<ReadOperation>& operation, bool queued);
  absl::Status MapRead(Inode& inode, ReadOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void ReadDone(const std::shared_ptr<ReadOperation>& operation);
  // Queues `task` behind the writes it collides with; false when nothing is in the way.
  bool DeferIfBlocked(const InodeRef& inode, LogicalBlock first, LogicalBlock last, bool queued,
                      absl::AnyInvocable<bool()> task);
  void WakeInode(const InodeRef& inode);
  void RunDeferred(const InodeRef& inode);
  bool ReleaseAllWindows();  // false if there was none
  void TimerLoop();

  VolumeContext* const context_;
  DirtyTimes* const dirty_times_;
  const Options options_;
  BufferPool buffers_;
  std::atomic<uint64_t> outstanding_bytes_{0};
  std::atomic<uint64_t> deferred_errors_{0};
  std::atomic<blockio::Ticket> newest_need_{blockio::kNoNeed};

  Mutex volume_mutex_;  // leaf
  CondVar volume_changed_;
  uint64_t next_volume_sequence_ ABSL_GUARDED_BY(volume_mutex_) = 1;
  std::set<uint64_t> outstanding_ ABSL_GUARDED_BY(volume_mutex_);  // bounded by the writes in flight
  std::vector<std::shared_ptr<VolumeBarrier>> volume_barriers_ ABSL_GUARDED_BY(volume_mutex_);
  std::vector<std::weak_ptr<Inode>> windows_ ABSL_GUARDED_BY(volume_mutex_);  // inodes with preallocated blocks
  std::vector<std::shared_ptr<WriteOperation>> waiting_for_space_ ABSL_GUARDED_BY(volume_mutex_);
  std::set<uint64_t> deletions_ ABSL_GUARDED_BY(volume_mutex_);  // bounded by the inodes in memory
  uint64_t next_deletion_ ABSL_GUARDED_BY(volume_mutex_) = 0;
  uint32_t ending_ ABSL_GUARDED_BY(volume_mutex_) = 0;  // operations that left `outstanding_` and are not through yet
  bool stopping_ ABSL_GUARDED_BY(volume_mutex_) = false;
  Thread timer_;
};

}  // namespace elidefs::core
