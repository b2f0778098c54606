#include "fuse/daemon.h"

#include <utility>
#include <vector>

#include "fuse/errno_table.h"

namespace elidefs::fuse {

Daemon::Daemon(std::unique_ptr<Volume> volume, bool writeback_cache, DaemonLog* log)
    : volume_(std::move(volume)),
      writeback_cache_(writeback_cache),
      log_(log),
      worker_(std::make_unique<WorkerPool>(1, "elidefs-drop")) {}

Daemon::~Daemon() = default;

OpenFile* Daemon::AddFile(std::unique_ptr<File> file) {
  auto* open_file = new OpenFile;
  open_file->file = std::move(file);
  MutexLock lock(mutex_);
  files_.insert(open_file);
  return open_file;
}

void Daemon::ReleaseFile(OpenFile* file) {
  {
    MutexLock lock(mutex_);
    files_.erase(file);
  }
  if (file->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete file;
}

void Daemon::DestroyLater(OpenFile* file) {
  worker_->Schedule([file] { delete file; });
}

void Daemon::InvalidateLater(uint64_t node, uint64_t offset_bytes, uint64_t length_bytes) {
  // The kernel waits for pages under writeback here, whose completion may need the calling thread.
  worker_->Schedule([this, node, offset_bytes, length_bytes] {
    fuse_lowlevel_notify_inval_inode(session_, node, static_cast<off_t>(offset_bytes),
                                     static_cast<off_t>(length_bytes));
  });
}

void Daemon::WritebackLost(uint64_t node) {
  MutexLock lock(mutex_);
  lost_writeback_.insert(node);
  any_writeback_lost_.store(true, std::memory_order_release);
}

bool Daemon::HasLostWriteback(uint64_t node) const {
  if (!any_writeback_lost_.load(std::memory_order_acquire)) return false;
  MutexLock lock(mutex_);
  return lost_writeback_.contains(node);
}

void Daemon::RequestFinished() {
  if (in_flight_.fetch_sub(1, std::memory_order_acq_rel) == 1) in_flight_.notify_all();
}

absl::Status Daemon::Shutdown() {
  for (uint32_t count = in_flight_.load(std::memory_order_acquire); count != 0;
       count = in_flight_.load(std::memory_order_acquire)) {
    in_flight_.wait(count, std::memory_order_acquire);
  }
  std::vector<OpenFile*> left;
  {
    MutexLock lock(mutex_);
    left.assign(files_.begin(), files_.end());
    files_.clear();
  }
  for (OpenFile* file : left) delete file;
  worker_.reset();  // runs what is scheduled
  absl::Status status = volume_->Close();
  volume_.reset();
  return status;
}

PendingReply::PendingReply(Daemon* daemon, fuse_req_t request, OpenFile* file)
    : daemon_(daemon), request_(request), file_(file) {
  daemon_->RequestStarted();
  if (file_ != nullptr) file_->references.fetch_add(1, std::memory_order_relaxed);
}

PendingReply::PendingReply(PendingReply&& other) noexcept
    : daemon_(std::exchange(other.daemon_, nullptr)),
      request_(std::exchange(other.request_, nullptr)),
      file_(std::exchange(other.file_, nullptr)) {}

PendingReply::~PendingReply() {
  if (request_ != nullptr) fuse_reply_err(Take(), EIO);
  Finish();
}

fuse_req_t PendingReply::Take() {
  return std::exchange(request_, nullptr);
}

void PendingReply::Finish() {
  if (daemon_ == nullptr) return;
  OpenFile* file = std::exchange(file_, nullptr);
  if (file != nullptr && file->references.fetch_sub(1, std::memory_order_acq_rel) == 1) daemon_->DestroyLater(file);
  std::exchange(daemon_, nullptr)->RequestFinished();
}

void PendingReply::Error(int error) {
  if (request_ != nullptr) fuse_reply_err(Take(), ReplyErrno(error));
}

void PendingReply::Data(absl::Span<const uint8_t> data) {
  if (request_ != nullptr) fuse_reply_buf(Take(), reinterpret_cast<const char*>(data.data()), data.size());
}

void PendingReply::Written(size_t bytes) {
  if (request_ != nullptr) fuse_reply_write(Take(), bytes);
}

}  // namespace elidefs::fuse
