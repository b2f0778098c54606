// DataPath: reads and writes of regular files between the user's buffers and the block layer (D2, D5, D7).
//
// A write, in words: it is accepted under the inode's mutex (mapping looked up, holes get reserved blocks, size moves in
// memory, the operation joins InodeIo::writes), its bios start at once, and it is acknowledged while the volume holds fewer
// than write_behind_bytes, otherwise when the device answered. Each bio's completion records its need on the inode (E2).
// When the last one is in, a write that changed neither mapping nor size on disk ends there; any other is finished by a
// worker: one handle commits the reserved blocks, inserts or converts the extents and moves disk_size (D2). Only then
// does the operation leave the list, so that fdatasync's step 0 can wait for it.
//   A write that touches a block of an operation still on the list waits, not yet acknowledged, until that one has ended:
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
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "core/data/buffer_pool.h"
#include "core/data/dirty_times.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

class DataPath {
 public:
  using ReadCallback = absl::AnyInvocable<void(int error, absl::Span<const uint8_t> data)>;
  using WriteCallback = absl::AnyInvocable<void(int error, size_t written_bytes)>;

  struct Options {
    uint64_t write_behind_bytes = 64U << 20U;
    bool update_atime = true;
  };
  DataPath(VolumeContext* context, DirtyTimes* dirty_times, Options options);
  ~DataPath();

  void Read(InodeRef inode, uint64_t offset_bytes, size_t length_bytes, ReadCallback callback);
  // `late` delays the acknowledgement until the operation has ended (O_SYNC). `append`: at the end of file as of acceptance.
  // `privileged`: may use reserved blocks.
  void Write(InodeRef inode, uint64_t offset_bytes, absl::Span<const uint8_t> data, bool append, bool late,
             bool privileged, WriteCallback callback);

  // Runs `done` when every write of `inode` accepted so far has ended (fdatasync step 0); possibly at once.
  void AfterAcceptedWrites(const InodeRef& inode, absl::AnyInvocable<void()> done);
  // Runs `done` when every write of the volume accepted so far has ended, or after `timeout_ms`: lets one flush or commit
  // serve writes to other files that were acknowledged before this sync.
  void AfterVolumeWrites(uint32_t timeout_ms, absl::AnyInvocable<void()> done);

  // Closes the gate of one inode and waits until nothing is in flight; the destructor opens it. Taken without the inode's mutex.
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

  // Zeroes the block bytes behind `size_bytes` on the device if the block is mapped, written and not zero there. Blocking;
  // the gate is closed. The need is recorded on the inode and in the handle-less caller's next handle via Inode::need.
  absl::Status ZeroTail(const InodeRef& inode, uint64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);

  // Gives the inode's unused preallocated blocks back (last close, truncate, eviction).
  void ReleaseWindow(const InodeRef& inode);
  // Waits until no write of the volume is under way. New ones may start meanwhile.
  void Drain();

  uint64_t write_behind_bytes_now() const { return outstanding_bytes_.load(std::memory_order_relaxed); }

 private:
  friend struct WriteOperation;
  struct ReadOperation;
  struct VolumeBarrier;

  // The stages of a write, see data_path.cc.
  void Accept(std::shared_ptr<WriteOperation> operation);
  absl::Status MapWrite(WriteOperation& operation);
  void StartDevice(const std::shared_ptr<WriteOperation>& operation);
  void SubmitWrites(const std::shared_ptr<WriteOperation>& operation);
  void DeviceDone(WriteOperation* operation);
  void ScheduleFinish(const InodeRef& inode);
  void FinishReady(const InodeRef& inode);
  absl::Status InsertSegments(Inode& inode, WriteOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  void End(const std::shared_ptr<WriteOperation>& operation, int error);
  void StartRead(std::shared_ptr<ReadOperation> operation);
  void WakeInode(const InodeRef& inode);
  void TimerLoop();

  VolumeContext* const context_;
  DirtyTimes* const dirty_times_;
  const Options options_;
  BufferPool buffers_;
  std::atomic<uint64_t> outstanding_bytes_{0};

  Mutex volume_mutex_;  // leaf
  CondVar volume_changed_;
  uint64_t next_volume_sequence_ ABSL_GUARDED_BY(volume_mutex_) = 1;
  std::set<uint64_t> outstanding_ ABSL_GUARDED_BY(volume_mutex_);  // bounded by the writes in flight
  std::vector<std::shared_ptr<VolumeBarrier>> volume_barriers_ ABSL_GUARDED_BY(volume_mutex_);
  std::vector<std::weak_ptr<Inode>> windows_ ABSL_GUARDED_BY(volume_mutex_);  // inodes with preallocated blocks
  bool stopping_ ABSL_GUARDED_BY(volume_mutex_) = false;
  std::thread timer_;
};

}  // namespace elidefs::core
