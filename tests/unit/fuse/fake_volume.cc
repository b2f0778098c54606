#include "tests/unit/fuse/fake_volume.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::fuse {
namespace {

absl::Status Fail(int error) {
  return ErrnoError(error, strerror(error));
}

}  // namespace

class FakeFile : public File {
 public:
  FakeFile(FakeVolume* volume, InodeId inode, std::string name, uint32_t open_flags)
      : volume_(volume), inode_(inode), name_(std::move(name)), open_flags_(open_flags) {}
  ~FakeFile() override {
    MutexLock lock(volume_->mutex_);
    --volume_->open_files_;
  }
  InodeId inode() const override { return inode_; }

  void ReadAsync(uint64_t offset_bytes, size_t length_bytes, ReadCallback callback) override {
    std::string data;
    {
      MutexLock lock(volume_->mutex_);
      const std::string& content = volume_->Find(inode_)->content;
      if (offset_bytes < content.size()) data = content.substr(offset_bytes, length_bytes);
    }
    const int error = (open_flags_ & kOpenRead) == 0 ? EBADF : 0;
    FakeVolume::Later([callback = std::move(callback), data = std::move(data), error]() mutable {
      callback(error, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data.data()), data.size()));
    });
  }

  void WriteAsync(uint64_t offset_bytes, absl::Span<const uint8_t> data, uint32_t /*flags*/,
                  WriteCallback callback) override {
    const int error = name_ == "write-fails" ? EIO : 0;
    const size_t size = data.size();
    if (error == 0) {
      MutexLock lock(volume_->mutex_);
      FakeVolume::Inode* inode = volume_->Find(inode_);
      if (inode->content.size() < offset_bytes + size) inode->content.resize(offset_bytes + size);
      memcpy(inode->content.data() + offset_bytes, data.data(), size);
      inode->attributes.st_size = static_cast<off_t>(inode->content.size());
      volume_->stats_.written_bytes += size;
      if ((open_flags_ & (kOpenSync | kOpenDataSync)) != 0) ++volume_->stats_.syncs.o_sync_writes;
    }
    FakeVolume::Later([callback = std::move(callback), error, size]() mutable { callback(error, size); });
  }

  void SyncAsync(bool data_only, SyncCallback callback) override {
    {
      MutexLock lock(volume_->mutex_);
      VolumeStats::Syncs& syncs = volume_->stats_.syncs;
      ++(data_only ? syncs.fdatasync_calls : syncs.fsync_calls);
    }
    const int error = name_ == "sync-fails" ? ENOSYS : name_ == "sync-is-odd" ? 512 : 0;
    FakeVolume::Later([callback = std::move(callback), error]() mutable { callback(error); });
  }

 private:
  FakeVolume* const volume_;
  const InodeId inode_;
  const std::string name_;
  const uint32_t open_flags_;
};

FakeVolume::FakeVolume(std::string closed_path, absl::Status close_status)
    : closed_path_(std::move(closed_path)), close_status_(std::move(close_status)) {
  MutexLock lock(mutex_);
  Inode& root = inodes_[kRootInodeId];
  root.attributes.st_ino = kRootInodeId;
  root.attributes.st_mode = S_IFDIR | 0755;
  root.attributes.st_nlink = 2;
  stats_.queues.resize(1);
}

FakeVolume::~FakeVolume() {
  static_cast<void>(Close());
}

void FakeVolume::Later(absl::AnyInvocable<void()> action) {
  std::thread([action = std::move(action)]() mutable {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    action();
  }).detach();
}

absl::Status FakeVolume::Close() {
  MutexLock lock(mutex_);
  if (closed_) return close_status_;
  closed_ = true;
  size_t looked_up = 0;
  for (const auto& [number, inode] : inodes_) looked_up += inode.lookups > 0 ? 1 : 0;
  std::ofstream(closed_path_) << "open files " << open_files_ << ", looked up " << looked_up << ", written "
                              << stats_.written_bytes << "\n";
  return close_status_;
}

FakeVolume::Inode* FakeVolume::Find(InodeId inode) {
  const auto found = inodes_.find(inode);
  return found == inodes_.end() ? nullptr : &found->second;
}

absl::StatusOr<FakeVolume::Inode*> FakeVolume::FindDirectory(InodeId inode) {
  Inode* found = Find(inode);
  if (found == nullptr) return Fail(ESTALE);
  if (!S_ISDIR(found->attributes.st_mode)) return Fail(ENOTDIR);
  return found;
}

Entry FakeVolume::Reference(InodeId inode) {
  Inode* found = Find(inode);
  ++found->lookups;
  return {inode, 1, found->attributes};
}

absl::StatusOr<Entry> FakeVolume::Lookup(InodeId directory, std::string_view name) {
  MutexLock lock(mutex_);
  ELIDEFS_ASSIGN_OR_RETURN(Inode * parent, FindDirectory(directory));
  const auto found = parent->names.find(name);
  if (found == parent->names.end()) return Fail(ENOENT);
  return Reference(found->second);
}

absl::StatusOr<Entry> FakeVolume::LookupInode(InodeId inode) {
  MutexLock lock(mutex_);
  const Inode* found = Find(inode);
  if (found == nullptr) return Fail(ESTALE);
  if (found->first_name == "unreadable") return Fail(EUCLEAN);
  return Reference(inode);
}

void FakeVolume::Forget(InodeId inode, uint64_t lookups) {
  MutexLock lock(mutex_);
  if (Inode* found = Find(inode); found != nullptr) found->lookups -= lookups;
}

absl::StatusOr<struct stat> FakeVolume::GetAttributes(InodeId inode) {
  MutexLock lock(mutex_);
  const Inode* found = Find(inode);
  if (found == nullptr) return Fail(ESTALE);
  return found->attributes;
}

absl::StatusOr<struct stat> FakeVolume::SetAttributes(InodeId inode, const AttributeChange& change) {
  MutexLock lock(mutex_);
  Inode* found = Find(inode);
  if (found == nullptr) return Fail(ESTALE);
  struct stat& attributes = found->attributes;
  if ((change.fields & AttributeChange::kMode) != 0) {
    attributes.st_mode = (attributes.st_mode & S_IFMT) | (change.mode & 07777U);
  }
  if ((change.fields & AttributeChange::kUid) != 0) attributes.st_uid = change.uid;
  if ((change.fields & AttributeChange::kGid) != 0) attributes.st_gid = change.gid;
  if ((change.fields & AttributeChange::kSize) != 0) {
    found->content.resize(change.size_bytes);
    attributes.st_size = static_cast<off_t>(change.size_bytes);
  }
  if ((change.fields & AttributeChange::kAtime) != 0) attributes.st_atim = change.atime;
  if ((change.fields & AttributeChange::kMtime) != 0) attributes.st_mtim = change.mtime;
  return attributes;
}

absl::StatusOr<std::string> FakeVolume::ReadLink(InodeId inode) {
  MutexLock lock(mutex_);
  return Find(inode)->content;
}

absl::StatusOr<Entry> FakeVolume::Make(InodeId directory, std::string_view name, uint32_t mode, uint64_t device_number,
                                       const Credentials& owner, std::string_view content) {
  ELIDEFS_ASSIGN_OR_RETURN(Inode * parent, FindDirectory(directory));
  if (parent->names.contains(name)) return Fail(EEXIST);
  if (name.size() > 255) return Fail(ENAMETOOLONG);
  const InodeId number = next_inode_++;
  parent->names.emplace(std::string(name), number);
  Inode& inode = inodes_[number];
  inode.first_name = std::string(name);
  inode.content = std::string(content);
  inode.attributes.st_ino = number;
  inode.attributes.st_mode = mode;
  inode.attributes.st_rdev = device_number;
  inode.attributes.st_nlink = S_ISDIR(mode) ? 2 : 1;
  inode.attributes.st_uid = owner.uid;
  inode.attributes.st_gid = owner.gid;
  inode.attributes.st_size = static_cast<off_t>(content.size());
  inode.attributes.st_blksize = 4096;
  return Reference(number);
}

absl::StatusOr<Entry> FakeVolume::MakeNode(InodeId directory, std::string_view name, uint32_t mode,
                                           uint64_t device_number, const Credentials& owner) {
  MutexLock lock(mutex_);
  return Make(directory, name, mode, device_number, owner, "");
}

absl::StatusOr<Entry> FakeVolume::MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                                const Credentials& owner) {
  MutexLock lock(mutex_);
  return Make(directory, name, S_IFDIR | mode, 0, owner, "");
}

absl::StatusOr<Entry> FakeVolume::MakeSymlink(InodeId directory, std::string_view name, std::string_view target,
                                              const Credentials& owner) {
  MutexLock lock(mutex_);
  return Make(directory, name, S_IFLNK | 0777, 0, owner, target);
}

absl::StatusOr<Entry> FakeVolume::Link(InodeId inode, InodeId directory, std::string_view name) {
  MutexLock lock(mutex_);
  ELIDEFS_ASSIGN_OR_RETURN(Inode * parent, FindDirectory(directory));
  if (!parent->names.emplace(std::string(name), inode).second) return Fail(EEXIST);
  ++Find(inode)->attributes.st_nlink;
  return Reference(inode);
}

absl::Status FakeVolume::Remove(InodeId directory, std::string_view name, bool is_directory) {
  ELIDEFS_ASSIGN_OR_RETURN(Inode * parent, FindDirectory(directory));
  const auto found = parent->names.find(name);
  if (found == parent->names.end()) return Fail(ENOENT);
  Inode* inode = Find(found->second);
  if (is_directory && !inode->names.empty()) return Fail(ENOTEMPTY);
  inode->attributes.st_nlink -= is_directory ? 2 : 1;
  parent->names.erase(found);  // inodes stay in memory: there may be lookups
  return absl::OkStatus();
}

absl::Status FakeVolume::Unlink(InodeId directory, std::string_view name) {
  MutexLock lock(mutex_);
  return Remove(directory, name, false);
}

absl::Status FakeVolume::RemoveDirectory(InodeId directory, std::string_view name) {
  MutexLock lock(mutex_);
  return Remove(directory, name, true);
}

absl::Status FakeVolume::Rename(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                                std::string_view new_name, uint32_t flags) {
  MutexLock lock(mutex_);
  ELIDEFS_ASSIGN_OR_RETURN(Inode * from, FindDirectory(old_directory));
  ELIDEFS_ASSIGN_OR_RETURN(Inode * to, FindDirectory(new_directory));
  const auto found = from->names.find(old_name);
  if (found == from->names.end()) return Fail(ENOENT);
  const InodeId number = found->second;
  if (to->names.contains(new_name) && (flags & kRenameNoReplace) != 0) return Fail(EEXIST);
  from->names.erase(found);
  to->names[std::string(new_name)] = number;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> FakeVolume::OpenFile(InodeId inode, uint32_t open_flags) {
  MutexLock lock(mutex_);
  const Inode* found = Find(inode);
  if (found == nullptr) return Fail(ESTALE);
  if (found->first_name == "open-fails") return Fail(EIO);
  ++open_files_;
  return std::make_unique<FakeFile>(this, inode, found->first_name, open_flags);
}

absl::Status FakeVolume::ReadDirectory(InodeId directory, uint64_t cookie,
                                       const std::function<bool(const DirectoryItem&)>& visit) {
  MutexLock lock(mutex_);  // held during the visit, as a real volume may do
  ELIDEFS_ASSIGN_OR_RETURN(const Inode* inode, FindDirectory(directory));
  std::vector<std::pair<std::string, InodeId>> all = {{".", directory}, {"..", directory}};
  all.insert(all.end(), inode->names.begin(), inode->names.end());
  for (uint64_t i = cookie; i < all.size(); ++i) {
    const uint32_t type = Find(all[i].second)->attributes.st_mode & S_IFMT;
    if (!visit({all[i].first, all[i].second, type, i + 1})) break;
  }
  return absl::OkStatus();
}

void FakeVolume::SyncDirectoryAsync(InodeId /*directory*/, bool /*data_only*/, File::SyncCallback callback) {
  {
    MutexLock lock(mutex_);
    ++stats_.syncs.directory_calls;
  }
  Later([callback = std::move(callback)]() mutable { callback(0); });
}

absl::Status FakeVolume::Flush() {
  MutexLock lock(mutex_);
  ++stats_.flushes.requested;
  return absl::OkStatus();
}

absl::StatusOr<VolumeSpace> FakeVolume::GetSpace() {
  VolumeSpace space;
  space.block_bytes = 4096;
  space.blocks = 1000;
  space.free_blocks = 600;
  space.available_blocks = 500;
  space.inodes = 64;
  space.free_inodes = 50;
  return space;
}

VolumeStats FakeVolume::Stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace elidefs::fuse
