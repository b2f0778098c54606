// Volume and File: an ext4 volume without a kernel mount.
//
// Ownership: a Volume owns its device. Files and directory streams keep the volume's inodes alive but must be destroyed
// before the Volume is closed. Threads: all methods of Volume and File are thread-safe. Blocking: methods named
// ...Async never wait for the device and never run their callback while holding a lock; the callback runs on the
// calling thread, a completion thread or a worker thread and must not block. All other methods may block for metadata
// I/O. Errors: absl::Status that carries an errno (`ErrnoOf`); asynchronous results are plain errnos (0: success).
// Inode references: every Entry that is returned counts one lookup on its inode; give it back with Forget. An inode
// with lookups or open Files stays usable after its last name is gone (POSIX unlink).
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "elidefs/block_device.h"
#include "elidefs/options.h"
#include "elidefs/stats.h"

namespace elidefs {

using InodeId = uint64_t;
inline constexpr InodeId kRootInodeId = 2;

// The errno inside a status of this library; 0 for OK.
int ErrnoOf(const absl::Status& status);

struct Entry {
  InodeId inode = 0;
  uint32_t generation = 0;
  struct stat attributes =
      {};  // st_ino, st_mode, st_nlink, st_uid, st_gid, st_rdev, st_size, st_blocks, st_blksize, times
};

struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
};

struct AttributeChange {
  enum Field : uint32_t {
    kMode = 1U << 0U,
    kUid = 1U << 1U,
    kGid = 1U << 2U,
    kSize = 1U << 3U,
    kAtime = 1U << 4U,
    kMtime = 1U << 5U,
    kCtime = 1U << 6U,
    kAtimeNow = 1U << 7U,
    kMtimeNow = 1U << 8U,
  };
  uint32_t fields = 0;
  uint32_t mode = 0, uid = 0, gid = 0;
  uint64_t size_bytes = 0;
  timespec atime = {}, mtime = {}, ctime = {};
};

struct VolumeSpace {
  uint64_t block_bytes = 0;
  uint64_t blocks = 0, free_blocks = 0, available_blocks = 0;  // available: without the reserve
  uint64_t inodes = 0, free_inodes = 0;
  uint64_t filesystem_id = 0;
};

struct DirectoryItem {
  std::string_view name;  // valid during the visit
  InodeId inode = 0;
  uint32_t mode_type = 0;  // S_IFMT bits, 0 if the volume does not record types
  uint64_t next_cookie = 0;
};

enum RenameFlag : uint32_t { kRenameNoReplace = 1, kRenameExchange = 2 };
enum OpenFlag : uint32_t {
  kOpenRead = 1,
  kOpenWrite = 2,
  kOpenAppend = 4,
  kOpenSync = 8,
  kOpenDataSync = 16,
  kOpenTruncate = 32
};

enum WriteFlag : uint32_t {
  // The file's times stay: a cache above writes late, and whoever holds it sets them (SetAttributes).
  kWriteKeepTimes = 1,
};

// One open description of a regular file: reports each deferred write error once.
class File {
 public:
  using ReadCallback = absl::AnyInvocable<void(int error, absl::Span<const uint8_t> data)>;  // data: during the call
  using WriteCallback = absl::AnyInvocable<void(int error, size_t written_bytes)>;
  using SyncCallback = absl::AnyInvocable<void(int error)>;

  virtual ~File() = default;
  virtual InodeId inode() const = 0;
  // Short at end of file.
  virtual void ReadAsync(uint64_t offset_bytes, size_t length_bytes, ReadCallback callback) = 0;
  // Copies `data` before it returns. The callback comes when the data is in the volume's hands (write-behind), or, for
  // a description opened with kOpenSync/kOpenDataSync, when it is durable. ENOSPC, EFBIG, EIO (also of an earlier
  // write), EROFS.
  // `flags`: of WriteFlag.
  virtual void WriteAsync(uint64_t offset_bytes, absl::Span<const uint8_t> data, uint32_t flags,
                          WriteCallback callback) = 0;
  // fdatasync (`data_only`) or fsync.
  virtual void SyncAsync(bool data_only, SyncCallback callback) = 0;

  // Blocking forms.
  absl::StatusOr<size_t> Read(uint64_t offset_bytes, absl::Span<uint8_t> into);
  absl::StatusOr<size_t> Write(uint64_t offset_bytes, absl::Span<const uint8_t> data);
  absl::Status Sync(bool data_only);
};

class Volume {
 public:
  // Takes the device over. Replays the journal if needed and flushes once. Errors name the volume's fault and the
  // remedy.
  static absl::StatusOr<std::unique_ptr<Volume>> Open(std::unique_ptr<BlockDevice> device,
                                                      const VolumeOptions& options);
  // Closes as Close, dropping the status.
  virtual ~Volume() = default;
  // Makes everything durable, empties the journal, marks the superblock clean. Files must be gone. Idempotent.
  virtual absl::Status Close() = 0;

  virtual absl::StatusOr<Entry> Lookup(InodeId directory, std::string_view name) = 0;
  virtual absl::StatusOr<Entry> LookupInode(InodeId inode) = 0;  // +1 lookup; for names found by ReadDirectory
  virtual void Forget(InodeId inode, uint64_t lookups) = 0;
  virtual absl::StatusOr<struct stat> GetAttributes(InodeId inode) = 0;
  virtual absl::StatusOr<struct stat> SetAttributes(InodeId inode, const AttributeChange& change) = 0;
  virtual absl::StatusOr<std::string> ReadLink(InodeId inode) = 0;

  // `mode` carries the type: regular, fifo, socket, character or block device (`device_number`).
  virtual absl::StatusOr<Entry> MakeNode(InodeId directory, std::string_view name, uint32_t mode,
                                         uint64_t device_number, const Credentials& owner) = 0;
  virtual absl::StatusOr<Entry> MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                              const Credentials& owner) = 0;
  virtual absl::StatusOr<Entry> MakeSymlink(InodeId directory, std::string_view name, std::string_view target,
                                            const Credentials& owner) = 0;
  virtual absl::StatusOr<Entry> Link(InodeId inode, InodeId directory, std::string_view name) = 0;
  virtual absl::Status Unlink(InodeId directory, std::string_view name) = 0;
  virtual absl::Status RemoveDirectory(InodeId directory, std::string_view name) = 0;
  // Flags other than kRenameNoReplace: EINVAL.
  virtual absl::Status Rename(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                              std::string_view new_name, uint32_t flags) = 0;

  virtual absl::StatusOr<std::unique_ptr<File>> OpenFile(InodeId inode, uint32_t open_flags) = 0;
  // Entries from `cookie` (0: the start) until the visitor returns false.
  virtual absl::Status ReadDirectory(InodeId directory, uint64_t cookie,
                                     const std::function<bool(const DirectoryItem&)>& visit) = 0;
  virtual void SyncDirectoryAsync(InodeId directory, bool data_only, File::SyncCallback callback) = 0;

  // Everything acknowledged before the call becomes durable (what sync(2) does elsewhere).
  virtual absl::Status Flush() = 0;
  virtual absl::StatusOr<VolumeSpace> GetSpace() = 0;
  virtual VolumeStats Stats() const = 0;
  virtual bool read_only() const = 0;

  // Path convenience for embedders and tests; absolute, no symlink following. +1 lookup on the result.
  absl::StatusOr<Entry> LookupPath(std::string_view path);
};

}  // namespace elidefs
