#include "blockio/request_queue.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "blockio/hardware_queue.h"
#include "blockio/quiesce_ref.h"

namespace elidefs::blockio {
namespace {

using Clock = SteadyClock;

constexpr uint32_t kMaxDefaultQueues = 4;
constexpr uint32_t kMinDepth = 2;
constexpr uint32_t kMaxDepth = 1024;

// Ends when the bio of SubmitAndWait has; `end_io` notifies under the lock, so the waiter may go once it holds it.
struct SyncWaiter {
  Mutex mutex;
  CondVar ended_cond;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

void EndSync(Bio* bio) {
  auto* waiter = static_cast<SyncWaiter*>(bio->context);
  MutexLock lock(waiter->mutex);
  waiter->ended = true;
  waiter->ended_cond.NotifyOne();
}

absl::Status CheckCapabilities(const BlockDevice& device) {
  const DeviceCapabilities& caps = device.capabilities();
  const uint64_t block = caps.logical_block_bytes;
  const bool sane = block >= 512 && (block & (block - 1)) == 0 && caps.max_transfer_bytes >= block &&
                    caps.max_segments > 0 && caps.max_queues > 0 && caps.memory_alignment_bytes > 0 &&
                    (caps.memory_alignment_bytes & (caps.memory_alignment_bytes - 1)) == 0;
  // The second condition lets any bio be cut at logical blocks within the limit of segments.
  if (!sane || static_cast<uint64_t>(caps.max_segments) * caps.memory_alignment_bytes < block) {
    return ErrnoError(EINVAL, absl::StrCat(device.name(), ": the device reports impossible limits"));
  }
  return absl::OkStatus();
}

// 0, or the errno that a bio which must not reach the device ends with.
int CheckBio(const Bio& bio, const DeviceCapabilities& caps) {
  if (bio.operation == Operation::kFlush) return bio.length_bytes == 0 && bio.segment_count == 0 ? 0 : EINVAL;
  if (bio.length_bytes == 0 || bio.length_bytes % caps.logical_block_bytes != 0 ||
      bio.offset_bytes % caps.logical_block_bytes != 0) {
    return EINVAL;
  }
  if (bio.offset_bytes > caps.size_bytes || bio.length_bytes > caps.size_bytes - bio.offset_bytes) return EINVAL;
  if (bio.operation != Operation::kRead && caps.read_only) return EROFS;
  if (bio.operation == Operation::kDiscard || bio.operation == Operation::kWriteZeroes) {
    const bool supported = bio.operation == Operation::kDiscard ? caps.discard : caps.write_zeroes;
    if (!supported) return EOPNOTSUPP;
    return bio.segment_count == 0 ? 0 : EINVAL;
  }
  const uint64_t mask = caps.memory_alignment_bytes - 1;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < bio.segment_count; ++i) {
    const iovec& segment = bio.segments[i];
    if (segment.iov_len == 0 || ((reinterpret_cast<uintptr_t>(segment.iov_base) | segment.iov_len) & mask) != 0) {
      return EINVAL;
    }
    if (segment.iov_len > bio.length_bytes - sum) return EINVAL;
    sum += segment.iov_len;
  }
  return sum == bio.length_bytes ? 0 : EINVAL;
}

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

struct RequestQueue::Impl {
  explicit Impl(BlockDevice* device)
      : device(device), ledger(device->capabilities().volatile_write_cache, [this] { DispatchFlush(); }) {}

  // As many hardware queues as asked for, or none and an error.
  absl::Status MakeQueues(uint32_t count, uint32_t depth, std::chrono::milliseconds starvation_bound) {
    std::vector<std::unique_ptr<HardwareQueue>> made;
    for (uint32_t index = 0; index < count; ++index) {
      // The flush request needs no tag, so the device sees one request more than there are tags.
      ELIDEFS_ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> device_queue, device->CreateQueue(index, depth + 1));
      made.push_back(HardwareQueue::Create(std::move(device_queue), &device->capabilities(), &ledger, &users, depth,
                                           starvation_bound));
      if (made.back() == nullptr) {
        return ErrnoError(ENOMEM, absl::StrCat(device->name(), ": no memory for ", count, " queues of ", depth,
                                               " requests; ask for fewer queues"));
      }
    }
    queues = std::move(made);
    return absl::OkStatus();
  }

  HardwareQueue* PickQueue() {
    const uint32_t cpu = queues.size() > 1 ? Thread::CurrentCpu() : 0;
    return queues[cpu % queues.size()].get();
  }

  ~Impl() {
    {
      MutexLock lock(watch_mutex);
      watch_ends = true;
      watch_ends_cond.NotifyAll();
    }
    if (watch.joinable()) watch.Join();
  }

  // E8: the setting lives in sysfs and anybody may change it, so a device that began without a volatile cache is
  // watched.
  void WatchWriteCache(std::chrono::milliseconds interval) {
    MutexLock lock(watch_mutex);
    while (!watch_ends) {
      (void)watch_ends_cond.WaitFor(watch_mutex, interval);
      if (!watch_ends && device->HasVolatileCache()) {
        ledger.BecomeVolatile();
        // What was written since the cache was switched on is in it. A failure fails the leaf, which all syncs see.
        (void)ledger.FlushUnconditionally();
        return;
      }
    }
  }

  // Takes a reference without ever blocking the threads that run completions.
  void Enter() {
    if (CompletionScope::Holds(&users)) {
      users.Get();
    } else {
      users.Enter();
    }
  }

  // For the ledger. A flush that is asked for while the queue is frozen is sent at Unfreeze.
  void DispatchFlush() {
    if (CompletionScope::Holds(&users)) {
      users.Get();
    } else if (!users.TryEnter()) {
      flush_at_unfreeze.store(true);
      if (!users.TryEnter()) return;
      if (!flush_at_unfreeze.exchange(false)) {  // Unfreeze came between and sends it
        users.Leave();
        return;
      }
    }
    PickQueue()->RequestFlush();
  }

  BlockDevice* const device;
  QuiesceRef users;
  FlushLedger ledger;
  std::atomic<bool> flush_at_unfreeze{false};
  std::vector<std::unique_ptr<HardwareQueue>> queues;  // constant after Create
  Mutex watch_mutex;
  CondVar watch_ends_cond;
  bool watch_ends ABSL_GUARDED_BY(watch_mutex) = false;
  Thread watch;
};

absl::StatusOr<std::unique_ptr<RequestQueue>> RequestQueue::Create(BlockDevice* device,
                                                                   const RequestQueueOptions& options) {
  ELIDEFS_RETURN_IF_ERROR(CheckCapabilities(*device));
  if (options.write_cache_poll_ms == 0) return ErrnoError(EINVAL, "the write cache's poll interval must not be 0");
  if (options.queue_depth < kMinDepth || options.queue_depth > kMaxDepth) {
    return ErrnoError(EINVAL, absl::StrCat("the queue depth must be between ", kMinDepth, " and ", kMaxDepth));
  }
  const DeviceCapabilities& caps = device->capabilities();
  uint32_t count = options.hardware_queues;
  if (count == 0) count = std::clamp(std::thread::hardware_concurrency(), 1U, kMaxDefaultQueues);
  count = std::min(count, caps.max_queues);
  auto impl = std::make_unique<Impl>(device);
  // As blk_mq_alloc_set_map_and_rqs: short of memory, half as deep is better than not at all.
  for (uint32_t depth = options.queue_depth;; depth /= 2) {
    const absl::Status status = impl->MakeQueues(count, depth, std::chrono::milliseconds(options.flush_starvation_ms));
    if (status.ok()) break;
    if (StatusToErrno(status) != ENOMEM || depth / 2 < kMinDepth) return status;
  }
  if (!caps.volatile_write_cache && !caps.read_only) {
    impl->watch = Thread("elidefs-watch",
                         [watcher = impl.get(), interval = std::chrono::milliseconds(options.write_cache_poll_ms)] {
                           watcher->WatchWriteCache(interval);
                         });
  }
  return std::unique_ptr<RequestQueue>(new RequestQueue(std::move(impl)));
}

RequestQueue::RequestQueue(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RequestQueue::~RequestQueue() {
  impl_->users.Freeze();
}

void RequestQueue::Submit(Bio* bio) {
  impl_->Enter();
  bio->error = 0;
  bio->need = kNoNeed;
  bio->remaining_children = 0;
  bio->next_segment = 0;
  bio->next_segment_offset = 0;
  bio->issued_bytes = 0;
  HardwareQueue* queue = impl_->PickQueue();
  bio->hardware_queue = queue;
  bio->error = CheckBio(*bio, impl_->device->capabilities());
  if (bio->error != 0) {
    {
      CompletionScope scope(&impl_->users);
      bio->end_io(bio);
    }
    impl_->users.Leave();
    return;
  }
  queue->Submit(bio);
}

int RequestQueue::SubmitAndWait(Bio* bio) {
  SyncWaiter waiter;
  auto* const end_io = bio->end_io;
  void* const context = bio->context;
  bio->end_io = &EndSync;
  bio->context = &waiter;
  Submit(bio);
  // Not polled here: that would run other bios' end_io, and with it users' callbacks, under whatever locks this caller
  // holds.
  {
    MutexLock lock(waiter.mutex);
    while (!waiter.ended) waiter.ended_cond.Wait(waiter.mutex);
  }
  bio->end_io = end_io;
  bio->context = context;
  return bio->error;
}

int RequestQueue::Read(uint64_t offset_bytes, void* data, uint64_t length_bytes) {
  const uint64_t alignment = capabilities().memory_alignment_bytes;
  iovec segment{data, length_bytes};
  std::unique_ptr<void, FreeDeleter> bounce;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0 && length_bytes % alignment == 0) {
    bounce.reset(std::aligned_alloc(alignment, length_bytes));
    if (bounce == nullptr) return ENOMEM;
    segment.iov_base = bounce.get();
  }
  Bio bio{.operation = Operation::kRead,
          .offset_bytes = offset_bytes,
          .length_bytes = length_bytes,
          .segments = &segment,
          .segment_count = 1};
  const int error = SubmitAndWait(&bio);
  if (error == 0 && bounce != nullptr) std::memcpy(data, bounce.get(), length_bytes);
  return error;
}

int RequestQueue::Write(uint64_t offset_bytes, const void* data, uint64_t length_bytes, Ticket* need) {
  const uint64_t alignment = capabilities().memory_alignment_bytes;
  iovec segment{const_cast<void*>(data), length_bytes};
  std::unique_ptr<void, FreeDeleter> bounce;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0 && length_bytes % alignment == 0) {
    bounce.reset(std::aligned_alloc(alignment, length_bytes));
    if (bounce == nullptr) return ENOMEM;
    std::memcpy(bounce.get(), data, length_bytes);
    segment.iov_base = bounce.get();
  }
  Bio bio{.operation = Operation::kWrite,
          .offset_bytes = offset_bytes,
          .length_bytes = length_bytes,
          .segments = &segment,
          .segment_count = 1};
  const int error = SubmitAndWait(&bio);
  if (need != nullptr) *need = bio.need;
  return error;
}

bool RequestQueue::InCompletion() const {
  return CompletionScope::Holds(&impl_->users);
}

FlushLedger& RequestQueue::ledger() {
  return impl_->ledger;
}
const DeviceCapabilities& RequestQueue::capabilities() const {
  return impl_->device->capabilities();
}
BlockDevice& RequestQueue::device() {
  return *impl_->device;
}

void RequestQueue::Quiesce() {
  for (const auto& queue : impl_->queues) queue->Quiesce();
}

void RequestQueue::Unquiesce() {
  for (const auto& queue : impl_->queues) queue->Unquiesce();
}

void RequestQueue::Freeze() {
  impl_->users.Freeze();
}

void RequestQueue::Unfreeze() {
  impl_->users.Unfreeze();
  if (impl_->flush_at_unfreeze.exchange(false)) impl_->DispatchFlush();
}

QueueStats RequestQueue::Stats() const {
  QueueStats stats;
  stats.flush = impl_->ledger.Stats();
  for (const auto& queue : impl_->queues) {
    const HardwareQueueCounters counters = queue->Counters();
    stats.hardware_queues.push_back(counters.queue);
    stats.reads += counters.reads;
    stats.writes += counters.writes;
    stats.discards += counters.discards;
    stats.read_bytes += counters.read_bytes;
    stats.written_bytes += counters.written_bytes;
    stats.errors += counters.errors;
  }
  return stats;
}

}  // namespace elidefs::blockio
