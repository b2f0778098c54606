// A volume in memory, for tests of the daemon without a block layer. Durability is not modelled.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "elidefs/volume.h"

namespace elidefs::fuse {

// Special names: opening a file called "open-fails" answers EIO; "sync-fails" answers ENOSYS (512 for "sync-is-odd") to
// each sync; writes to "write-fails" answer EIO. Replies to reads, writes and syncs come from another thread.
class FakeVolume : public Volume {
 public:
  // `closed_path`: a file that Close creates, with the number of open files and inodes with lookups as its content.
  explicit FakeVolume(std::string closed_path, absl::Status close_status = absl::OkStatus());
  ~FakeVolume() override;

  absl::Status Close() override;
  absl::StatusOr<Entry> Lookup(InodeId directory, std::string_view name) override;
  absl::StatusOr<Entry> LookupInode(InodeId inode) override;
  void Forget(InodeId inode, uint64_t lookups) override;
  absl::StatusOr<struct stat> GetAttributes(InodeId inode) override;
  absl::StatusOr<struct stat> SetAttributes(InodeId inode, const AttributeChange& change) override;
  absl::StatusOr<std::string> ReadLink(InodeId inode) override;
  absl::StatusOr<Entry> MakeNode(InodeId directory, std::string_view name, uint32_t mode, uint64_t device_number,
                                 const Credentials& owner) override;
  absl::StatusOr<Entry> MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                      const Credentials& owner) override;
  absl::StatusOr<Entry> MakeSymlink(InodeId directory, std::string_view name, std::string_view target,
                                    const Credentials& owner) override;
  absl::StatusOr<Entry> Link(InodeId inode, InodeId directory, std::string_view name) override;
  absl::Status Unlink(InodeId directory, std::string_view name) override;
  absl::Status RemoveDirectory(InodeId directory, std::string_view name) override;
  absl::Status Rename(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                      std::string_view new_name, uint32_t flags) override;
  absl::StatusOr<std::unique_ptr<File>> OpenFile(InodeId inode, uint32_t open_flags) override;
  absl::Status ReadDirectory(InodeId directory, uint64_t cookie,
                             const std::function<bool(const DirectoryItem&)>& visit) override;
  void SyncDirectoryAsync(InodeId directory, bool data_only, File::SyncCallback callback) override;
  absl::Status Flush() override;
  absl::StatusOr<VolumeSpace> GetSpace() override;
  VolumeStats Stats() const override;
  bool read_only() const override { return false; }

 private:
  friend class FakeFile;
  struct Inode {
    struct stat attributes = {};
    std::string content;  // data or link target
    std::map<std::string, InodeId, std::less<>> names;
    uint64_t lookups = 0;
    std::string first_name;
  };

  Inode* Find(InodeId inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Inode*> FindDirectory(InodeId inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entry Reference(InodeId inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry> Make(InodeId directory, std::string_view name, uint32_t mode, uint64_t device_number,
                             const Credentials& owner, std::string_view content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Remove(InodeId directory, std::string_view name, bool is_directory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Later(absl::AnyInvocable<void()> action);

  const std::string closed_path_;
  const absl::Status close_status_;
  mutable Mutex mutex_;
  std::map<InodeId, Inode> inodes_ ABSL_GUARDED_BY(mutex_);
  InodeId next_inode_ ABSL_GUARDED_BY(mutex_) = 11;
  VolumeStats stats_ ABSL_GUARDED_BY(mutex_);
  int open_files_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace elidefs::fuse
