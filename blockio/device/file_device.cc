#include "blockio/device/file_device.h"

#include <linux/falloc.h>
#include <pthread.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "blockio/device/file_source.h"

namespace elidefs::blockio {
namespace {

// Use of DeviceRequest::device_private.
enum PrivateSlot : size_t {
  kDoneBytes,  // transferred by earlier, short completions
  kAttempts,   // times the kernel gave the request back untouched
  kRest,       // std::vector<iovec>*: what is left after a short transfer
  kHandOff,    // orders the submitter's writes before the reaper's reads where the kernel is not seen to do it (tsan)
};

constexpr uint64_t kMaxAttempts = 16;
constexpr uint32_t kReapBatch = 32;
// Besides the requests: wake-ups of the completion thread.
constexpr uint32_t kSpareEntries = 8;

std::vector<iovec>* Rest(const DeviceRequest* request) {
  return std::bit_cast<std::vector<iovec>*>(request->device_private[kRest]);
}

bool Transfers(Operation operation) {
  return operation == Operation::kRead || operation == Operation::kWrite;
}

class FileDevice final : public BlockDevice {
 public:
  FileDevice(FileSource source, std::string path) : source_(std::move(source)), path_(std::move(path)) {
    source_.capabilities.max_queues = 64;
    source_.capabilities.max_segments = 256;
  }
  const DeviceCapabilities& capabilities() const override { return source_.capabilities; }
  bool HasVolatileCache() override {
    return source_.block_device == 0 || blockio::HasVolatileCache(source_.block_device);
  }
  const std::string& name() const override { return path_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override {
    return UringQueue::Create(source_.fd.get(), path_, index, depth);
  }

 private:
  FileSource source_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UringQueue>> UringQueue::Create(int fd, const std::string& name, uint32_t index,
                                                               uint32_t depth) {
  std::unique_ptr<UringQueue> queue(new UringQueue(fd));
  // The completion ring is twice as large, so it cannot overflow.
  const int error = io_uring_queue_init(std::bit_ceil(depth + kSpareEntries), &queue->ring_, 0);
  if (error < 0) {
    queue->ring_.ring_fd = -1;
    return ErrnoError(-error, absl::StrCat(name, ": cannot set up io_uring: ", strerror(-error),
                                           "; check kernel.io_uring_disabled, a container's seccomp filter and the "
                                           "limit of locked memory"));
  }
  queue->thread_ = std::thread([raw = queue.get()] { raw->CompletionThread(); });
  const std::string thread_name = absl::StrCat("elidefs-cq-", index);
  pthread_setname_np(queue->thread_.native_handle(), thread_name.substr(0, 15).c_str());
  return queue;
}

UringQueue::~UringQueue() {
  if (ring_.ring_fd < 0) return;
  stopping_.store(true, std::memory_order_release);
  Wake();
  thread_.join();
  io_uring_queue_exit(&ring_);
}

void UringQueue::Submit(DeviceRequest* request) {
  request->device_private[kDoneBytes] = 0;
  request->device_private[kAttempts] = 0;
  request->device_private[kRest] = 0;
  Send(request);
}

void UringQueue::Send(DeviceRequest* request) {
  int error = 0;
  {
    MutexLock lock(submission_mutex_);
    // Every call empties the ring, so there is always an entry.
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      error = EIO;
    } else {
      switch (request->operation) {
        case Operation::kRead:
        case Operation::kWrite:
          PrepareTransfer(request, sqe);
          break;
        case Operation::kFlush:
          io_uring_prep_fsync(sqe, fd_, IORING_FSYNC_DATASYNC);
          break;
        case Operation::kDiscard:
        case Operation::kWriteZeroes:
          io_uring_prep_fallocate(sqe, fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(request->offset_bytes), static_cast<off_t>(request->length_bytes));
          break;
      }
      io_uring_sqe_set_data(sqe, request);
      // After the last look at the request: from here on it belongs to whoever reaps it.
      std::atomic_ref<uint64_t>(request->device_private[kHandOff]).store(1, std::memory_order_release);
      error = Enter(sqe);
    }
  }
  if (error != 0) {
    delete Rest(request);
    request->complete(request, EIO);
  }
}

void UringQueue::PrepareTransfer(DeviceRequest* request, io_uring_sqe* sqe) {
  const std::vector<iovec>* rest = Rest(request);
  const iovec* segments = rest != nullptr ? rest->data() : request->segments;
  const auto count = rest != nullptr ? static_cast<unsigned>(rest->size()) : request->segment_count;
  const uint64_t offset = request->offset_bytes + request->device_private[kDoneBytes];
  if (request->operation == Operation::kRead) {
    io_uring_prep_readv2(sqe, fd_, segments, count, offset, 0);
  } else {
    // E6: `fua` is only ever set where the device has native FUA; elsewhere RWF_DSYNC would hide a flush.
    io_uring_prep_writev2(sqe, fd_, segments, count, offset, request->fua ? RWF_DSYNC : 0);
  }
}

int UringQueue::Enter(io_uring_sqe* sqe) {
  while (true) {
    const int submitted = io_uring_submit(&ring_);
    if (submitted >= 0) return 0;
    if (submitted == -EINTR) continue;
    if (submitted == -EAGAIN || submitted == -EBUSY) {  // short of memory, or completions not reaped yet
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      continue;
    }
    // The kernel did not take the entry; should it ever take it later, it must mean nothing.
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, nullptr);
    return -submitted;
  }
}

void UringQueue::Wake() {
  MutexLock lock(submission_mutex_);
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) return;
  io_uring_prep_nop(sqe);
  io_uring_sqe_set_data(sqe, nullptr);
  (void)Enter(sqe);
}

uint32_t UringQueue::Poll() {
  return Reap(false);
}

uint32_t UringQueue::Reap(bool wait_for_lock) {
  struct Completion {
    DeviceRequest* request;
    int result;
  };
  uint32_t completed = 0;
  while (true) {
    std::array<Completion, kReapBatch> batch;
    uint32_t count = 0;
    if (wait_for_lock) {
      completion_mutex_.Lock();
    } else if (!completion_mutex_.TryLock()) {
      return completed;  // somebody else is reaping
    }
    unsigned head = 0;
    io_uring_cqe* cqe = nullptr;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      batch[count++] = {static_cast<DeviceRequest*>(io_uring_cqe_get_data(cqe)), cqe->res};
      if (count == kReapBatch) break;
    }
    io_uring_cq_advance(&ring_, count);
    completion_mutex_.Unlock();
    for (uint32_t i = 0; i < count; ++i) {
      if (batch[i].request != nullptr && Finish(batch[i].request, batch[i].result)) ++completed;
    }
    if (count < kReapBatch) return completed;
  }
}

bool UringQueue::Finish(DeviceRequest* request, int result) {
  (void)std::atomic_ref<uint64_t>(request->device_private[kHandOff]).load(std::memory_order_acquire);
  if ((result == -EAGAIN || result == -EINTR || result == -ECANCELED) &&
      ++request->device_private[kAttempts] < kMaxAttempts) {
    Retry(request);
    return false;
  }
  int error = result < 0 ? -result : 0;
  if (error == 0 && Transfers(request->operation)) {
    const uint64_t left = request->length_bytes - request->device_private[kDoneBytes];
    const auto moved = static_cast<uint64_t>(result);
    if (moved == 0 || moved > left) {
      error = EIO;  // the end of the file where the device has bytes
    } else if (moved < left) {
      auto rest = std::make_unique<std::vector<iovec>>();
      request->device_private[kDoneBytes] += moved;
      uint64_t skip = request->device_private[kDoneBytes];
      for (uint32_t i = 0; i < request->segment_count; ++i) {
        const iovec& segment = request->segments[i];
        if (skip < segment.iov_len) {
          rest->push_back(iovec{static_cast<char*>(segment.iov_base) + skip, segment.iov_len - skip});
          skip = 0;
        } else {
          skip -= segment.iov_len;
        }
      }
      delete Rest(request);
      request->device_private[kRest] = std::bit_cast<uint64_t>(rest.release());
      Retry(request);
      return false;
    }
  }
  delete Rest(request);
  request->complete(request, error);
  return true;
}

void UringQueue::Retry(DeviceRequest* request) {
  {
    MutexLock lock(retry_mutex_);
    retries_.push_back(request);
  }
  if (std::this_thread::get_id() != thread_.get_id()) Wake();
}

void UringQueue::SendRetries() {
  std::vector<DeviceRequest*> retries;
  {
    MutexLock lock(retry_mutex_);
    retries.swap(retries_);
  }
  for (DeviceRequest* request : retries) Send(request);
}

void UringQueue::CompletionThread() {
  while (!stopping_.load(std::memory_order_acquire)) {
    // Sleeps until a completion arrives after the last look; a caller of Poll may then already have taken it. The plain
    // system call touches no state of liburing, which the two locks above guard.
    if (io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 1, IORING_ENTER_GETEVENTS, nullptr) == -EBADF) return;
    Reap(true);
    SendRetries();
  }
}

}  // namespace elidefs::blockio

namespace elidefs {

absl::StatusOr<std::unique_ptr<BlockDevice>> OpenFileDevice(const std::string& path, const FileDeviceOptions& options) {
  ELIDEFS_ASSIGN_OR_RETURN(blockio::FileSource source, blockio::OpenFileSource(path, options));
  return std::unique_ptr<BlockDevice>(std::make_unique<blockio::FileDevice>(std::move(source), path));
}

}  // namespace elidefs
