// Files: open and release, read, write, sync. Reads, writes and syncs are answered from callbacks (rule D5).
#include "fuse/data_ops.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "elidefs/volume.h"
#include "fuse/attributes.h"
#include "fuse/daemon.h"
#include "fuse/errno_table.h"
#include "fuse/operations.h"

namespace elidefs::fuse {
namespace {

OpenFile* FileOf(const fuse_file_info* file_info) {
  return reinterpret_cast<OpenFile*>(file_info->fh);
}

void FillFileInfo(const Daemon& daemon, OpenFile* file, fuse_file_info* file_info) {
  file_info->fh = reinterpret_cast<uint64_t>(file);
  file_info->keep_cache = 1;  // all changes go through this mount, so the kernel's pages are right
  // A FLUSH at each close has nothing to do here. With the writeback cache it makes the kernel write dirty pages first.
  file_info->noflush = daemon.writeback_cache() ? 0 : 1;
}

void Open(fuse_req_t request, fuse_ino_t node, fuse_file_info* file_info) {
  Daemon& daemon = DaemonOf(request);
  absl::StatusOr<std::unique_ptr<File>> file =
      daemon.volume().OpenFile(InodeOf(node), MakeOpenFlags(file_info->flags, daemon.writeback_cache()));
  if (!file.ok()) return ReplyStatus(request, file.status());
  OpenFile* open_file = daemon.AddFile(*std::move(file));
  FillFileInfo(daemon, open_file, file_info);
  // When the caller was interrupted the kernel sends no RELEASE.
  if (fuse_reply_open(request, file_info) != 0) daemon.ReleaseFile(open_file);
}

void Create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, fuse_file_info* file_info) {
  Daemon& daemon = DaemonOf(request);
  const fuse_ctx* context = fuse_req_ctx(request);
  const absl::StatusOr<Entry> entry =
      daemon.volume().MakeNode(InodeOf(directory), name, mode, 0, {context->uid, context->gid});
  if (!entry.ok()) return ReplyStatus(request, entry.status());
  absl::StatusOr<std::unique_ptr<File>> file =
      daemon.volume().OpenFile(entry->inode, MakeOpenFlags(file_info->flags, daemon.writeback_cache()));
  if (!file.ok()) {
    daemon.volume().Forget(entry->inode, 1);
    return ReplyStatus(request, file.status());
  }
  OpenFile* open_file = daemon.AddFile(*std::move(file));
  FillFileInfo(daemon, open_file, file_info);
  const fuse_entry_param param = MakeEntryParam(*entry);
  if (fuse_reply_create(request, &param, file_info) != 0) {
    daemon.ReleaseFile(open_file);
    daemon.volume().Forget(entry->inode, 1);
  }
}

void Read(fuse_req_t request, fuse_ino_t /*node*/, size_t size, off_t offset, fuse_file_info* file_info) {
  OpenFile* file = FileOf(file_info);
  file->file->ReadAsync(
      static_cast<uint64_t>(offset), size,
      [reply = PendingReply(&DaemonOf(request), request, file)](int error, absl::Span<const uint8_t> data) mutable {
        PendingReply answer = std::move(reply);
        if (error != 0) return answer.Error(error);
        answer.Data(data);
      });
}

void Write(fuse_req_t request, fuse_ino_t node, const char* buffer, size_t size, off_t offset,
           fuse_file_info* file_info) {
  OpenFile* file = FileOf(file_info);
  Daemon& daemon = DaemonOf(request);
  const bool from_cache = daemon.writeback_cache() && file_info->writepage != 0;
  const auto first = static_cast<uint64_t>(offset);
  // What the kernel writes back from its cache changes no times: it keeps them itself and sends them.
  file->file->WriteAsync(
      first, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(buffer), size),
      from_cache ? uint32_t{kWriteKeepTimes} : 0U,
      [reply = PendingReply(&daemon, request, file), node, first, size, from_cache](int error, size_t written) mutable {
        PendingReply answer = std::move(reply);
        if (error == 0) return answer.Written(written);
        const bool lost = from_cache && error == EROFS;
        if (lost) answer.daemon().WritebackLost(node);
        answer.Error(lost ? EIO : error);
        if (from_cache) answer.daemon().InvalidateLater(node, first, size);
      });
}

void Sync(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info* file_info) {
  OpenFile* file = FileOf(file_info);
  Daemon& daemon = DaemonOf(request);
  if (daemon.HasLostWriteback(node)) {
    fuse_reply_err(request, EIO);
    return;
  }
  file->file->SyncAsync(data_only != 0, [reply = PendingReply(&daemon, request, file)](int error) mutable {
    PendingReply(std::move(reply)).Error(error);
  });
}

// A close promises nothing and must not consume a deferred error: the next sync reports it.
void Flush(fuse_req_t request, fuse_ino_t /*node*/, fuse_file_info* /*file_info*/) {
  fuse_reply_err(request, 0);
}

void Release(fuse_req_t request, fuse_ino_t /*node*/, fuse_file_info* file_info) {
  DaemonOf(request).ReleaseFile(FileOf(file_info));
  fuse_reply_err(request, 0);
}

void Allocate(fuse_req_t request, fuse_ino_t /*node*/, int /*mode*/, off_t /*offset*/, off_t /*length*/,
              fuse_file_info* /*file_info*/) {
  fuse_reply_err(request, EOPNOTSUPP);
}

}  // namespace

uint32_t MakeOpenFlags(int flags, bool writeback_cache) {
  uint32_t result = 0;
  const int access = flags & O_ACCMODE;
  if (access != O_WRONLY || writeback_cache) result |= kOpenRead;
  if (access == O_WRONLY || access == O_RDWR) result |= kOpenWrite;
  if ((flags & O_SYNC) == O_SYNC) {  // O_SYNC contains O_DSYNC
    result |= kOpenSync;
  } else if ((flags & O_DSYNC) != 0) {
    result |= kOpenDataSync;
  }
  return result;
}

void AddDataOperations(fuse_lowlevel_ops* operations) {
  operations->open = Open;
  operations->create = Create;
  operations->read = Read;
  operations->write = Write;
  operations->fsync = Sync;
  operations->flush = Flush;
  operations->release = Release;
  operations->fallocate = Allocate;
}

}  // namespace elidefs::fuse
