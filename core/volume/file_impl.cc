// Open descriptions, and the syncs that do not need one.
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/mutex.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs {

int ErrnoOf(const absl::Status& status) {
  return StatusToErrno(status);
}

absl::StatusOr<size_t> File::Read(uint64_t offset_bytes, absl::Span<uint8_t> into) {
  Notification done;
  int error = 0;
  size_t length = 0;
  ReadAsync(offset_bytes, into.size(), [&](int result, absl::Span<const uint8_t> data) {
    error = result;
    length = data.size();
    if (!data.empty()) std::memcpy(into.data(), data.data(), data.size());
    done.Notify();
  });
  done.Wait();
  if (error != 0) return ErrnoError(error, "read failed");
  return length;
}

absl::StatusOr<size_t> File::Write(uint64_t offset_bytes, absl::Span<const uint8_t> data) {
  Notification done;
  int error = 0;
  size_t length = 0;
  WriteAsync(offset_bytes, data, 0, [&](int result, size_t written_bytes) {
    error = result;
    length = written_bytes;
    done.Notify();
  });
  done.Wait();
  if (error != 0) return ErrnoError(error, "write failed");
  return length;
}

absl::Status File::Sync(bool data_only) {
  Notification done;
  int error = 0;
  SyncAsync(data_only, [&](int result) {
    error = result;
    done.Notify();
  });
  done.Wait();
  if (error != 0) return ErrnoError(error, "sync failed");
  return absl::OkStatus();
}

}  // namespace elidefs

namespace elidefs::core {
namespace {

// Outlives the File while a callback is on its way.
struct OpenDescription {
  VolumeImpl* volume = nullptr;
  InodeRef inode;
  uint32_t flags = 0;
  Mutex mutex;
  uint64_t seen_error_sequence ABSL_GUARDED_BY(mutex) = 0;

  // The deferred error that this description has not reported yet, 0 if there is none.
  int TakeError() {
    MutexLock lock(mutex);
    MutexLock io_lock(inode->io.mutex);
    if (seen_error_sequence == inode->io.error_sequence) return 0;
    seen_error_sequence = inode->io.error_sequence;
    inode->io.reported_error_sequence = inode->io.error_sequence;
    return inode->io.last_error;
  }
};

class FileImpl final : public File {
 public:
  FileImpl(VolumeImpl* volume, const InodeRef& inode, uint32_t flags)
      : description_(std::make_shared<OpenDescription>()) {
    description_->volume = volume;
    description_->inode = inode;
    description_->flags = flags;
    MutexLock lock(description_->mutex);
    MutexLock io_lock(inode->io.mutex);
    description_->seen_error_sequence = inode->io.reported_error_sequence;
  }

  ~FileImpl() override {
    VolumeImpl* volume = description_->volume;
    if ((description_->flags & kOpenWrite) != 0) volume->data_path().ReleaseWindow(description_->inode);
    volume->inodes().Unuse(description_->inode, 1);
  }

  InodeId inode() const override { return description_->inode->number; }

  void ReadAsync(uint64_t offset_bytes, size_t length_bytes, ReadCallback callback) override {
    if ((description_->flags & kOpenRead) == 0) return callback(EBADF, {});
    description_->volume->data_path().Read(description_->inode, offset_bytes, length_bytes, std::move(callback));
  }

  void WriteAsync(uint64_t offset_bytes, absl::Span<const uint8_t> data, uint32_t flags,
                  WriteCallback callback) override {
    if ((description_->flags & kOpenWrite) == 0) return callback(EBADF, 0);
    if (const int error = description_->TakeError(); error != 0) return callback(error, 0);
    const bool durable = (description_->flags & (kOpenSync | kOpenDataSync)) != 0;
    const DataPath::WriteOptions options{.append = (description_->flags & kOpenAppend) != 0,
                                         .late = durable,
                                         .keep_times = (flags & kWriteKeepTimes) != 0};
    VolumeImpl* volume = description_->volume;
    if (!durable) {
      volume->data_path().Write(description_->inode, offset_bytes, data, options, std::move(callback));
      return;
    }
    // O_SYNC, O_DSYNC: as an fsync or fdatasync behind this write.
    volume->syncer().counters().o_sync_writes.fetch_add(1, std::memory_order_relaxed);
    const bool data_only = (description_->flags & kOpenSync) == 0;
    volume->data_path().Write(
        description_->inode, offset_bytes, data, options,
        [description = description_, data_only, callback = std::move(callback)](int error, size_t written) mutable {
          if (error != 0 || written == 0) return callback(error, written);
          description->volume->syncer().Sync(description->inode, data_only,
                                             [callback = std::move(callback), written](int sync_error) mutable {
                                               callback(sync_error, sync_error == 0 ? written : 0);
                                             });
        });
  }

  void SyncAsync(bool data_only, SyncCallback callback) override {
    SyncCounters& counters = description_->volume->syncer().counters();
    (data_only ? counters.fdatasync_calls : counters.fsync_calls).fetch_add(1, std::memory_order_relaxed);
    description_->volume->syncer().Sync(
        description_->inode, data_only,
        [description = description_, callback = std::move(callback)](int error) mutable {
          // The error of a deferred write is as much this sync's answer as a failed flush.
          const int deferred = description->TakeError();
          callback(error != 0 ? error : deferred);
        });
  }

 private:
  const std::shared_ptr<OpenDescription> description_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<File>> VolumeImpl::OpenFile(InodeId id, uint32_t open_flags) {
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef inode, GetInode(id));
  const bool writes = (open_flags & (kOpenWrite | kOpenTruncate)) != 0;
  if (writes) ELIDEFS_RETURN_IF_ERROR(RequireWritable());
  {
    MutexLock lock(inode->mutex);
    if (inode->IsDirectory()) return ErrnoError(EISDIR, "a directory cannot be opened as a file");
    if (!inode->IsRegular()) return ErrnoError(EINVAL, "only regular files can be opened");
    if (writes && (inode->flags & kInodeImmutable) != 0) return ErrnoError(EPERM, "the file is immutable");
    if ((inode->flags & kInodeAppend) != 0 &&
        ((open_flags & kOpenTruncate) != 0 || (writes && (open_flags & kOpenAppend) == 0))) {
      return ErrnoError(EPERM, "the file is append-only");
    }
    if ((inode->flags & kInodeSync) != 0) open_flags |= kOpenSync;
    ELIDEFS_RETURN_IF_ERROR(CheckAlive(*inode));
    inode_cache_->Use(inode);
  }
  auto file = std::make_unique<FileImpl>(this, inode, open_flags);
  if ((open_flags & kOpenTruncate) != 0) ELIDEFS_RETURN_IF_ERROR(SetSize(inode, 0));
  return std::unique_ptr<File>(std::move(file));
}

void VolumeImpl::SyncDirectoryAsync(InodeId directory, bool data_only, File::SyncCallback callback) {
  absl::StatusOr<InodeRef> inode = GetInode(directory);
  if (!inode.ok()) return callback(StatusToErrno(inode.status()));
  syncer_->counters().directory_calls.fetch_add(1, std::memory_order_relaxed);
  syncer_->Sync(*std::move(inode), data_only, std::move(callback));
}

absl::Status VolumeImpl::Flush() {
  if (!started_read_write_) return absl::OkStatus();
  Notification accepted_writes;
  data_path_->AfterVolumeWrites(UINT32_MAX, [&] { accepted_writes.Notify(); });
  accepted_writes.Wait();
  ELIDEFS_RETURN_IF_ERROR(dirty_times_->WriteAll());
  if (context_.journal->CommitBlocking(context_.journal->Newest(), nullptr) != 0) {
    return ErrnoError(EIO, "the commit failed; the volume is read-only");
  }
  if (context_.queue->ledger().AwaitBlocking(data_path_->newest_need(), nullptr) != 0) {
    return ErrnoError(EIO, "a device flush failed; run e2fsck after replacing the device");
  }
  const uint64_t errors = data_path_->deferred_errors();
  if (reported_errors_.exchange(errors) != errors) {
    return ErrnoError(EIO, "a write that was acknowledged before failed; the next sync of its file reports it as well");
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
