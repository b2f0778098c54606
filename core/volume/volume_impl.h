// VolumeImpl: Volume over the parts of core. Split over several files: open_close.cc (mount, recovery, unmount),
// lookup_ops.cc, create_ops.cc, remove_ops.cc, rename.cc, attributes.cc, truncate.cc (size changes, deletion),
// file_impl.cc.
//
// Locks: inode mutexes parent before child; two directories in number order under rename_mutex_; see DESIGN
// "Concurrency".
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/mutex.h"
#include "core/data/data_path.h"
#include "core/data/dirty_times.h"
#include "core/durability/syncer.h"
#include "core/inode/inode_cache.h"
#include "core/volume/internals.h"
#include "core/volume/orphan_list.h"
#include "core/volume_context.h"
#include "elidefs/volume.h"

namespace elidefs::core {

struct NewInode;  // create_ops.cc

class VolumeImpl final : public Volume {
 public:
  static absl::StatusOr<std::unique_ptr<Volume>> Open(std::unique_ptr<BlockDevice> device, const VolumeOptions& options,
                                                      const VolumeInternals& internals);
  ~VolumeImpl() override;

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
  bool read_only() const override { return !context_.writable(); }

  // For FileImpl and the tests' internals.
  VolumeContext& context() { return context_; }
  DataPath& data_path() { return *data_path_; }
  Syncer& syncer() { return *syncer_; }
  InodeCache& inodes() { return *inode_cache_; }

 private:
  VolumeImpl() = default;

  // open_close.cc, in the order of a mount.
  absl::Status Initialize(std::unique_ptr<BlockDevice> device, const VolumeOptions& options,
                          const VolumeInternals& internals);
  absl::Status CheckRoot();
  absl::StatusOr<SuperBlock> ReadSuperBlock();
  // Returns the journal's own blocks.
  absl::StatusOr<std::vector<BlockRange>> OpenJournalAndRecover();
  absl::Status KeepOverlay(const absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>& overlay);
  absl::Status LoadMetadata();
  void CreateParts(const VolumeInternals& internals);
  absl::Status StartReadWrite();
  absl::Status ProcessOrphans();
  void FinishAllDeletions();
  // Writes the superblock's buffer to the device; `need` receives what makes it durable.
  absl::Status WriteSuperBlock(blockio::Ticket* need);
  absl::StatusOr<std::vector<BlockRange>> JournalMap();
  SuperBlock* super_block() {
    return super_block_->As<SuperBlock>(kSuperBlockOffsetBytes % context_.geometry.block_bytes);
  }

  // failure.cc
  // The volume turns read-only: remembers why, marks the superblock (best effort, on a worker).
  void BecomeReadOnly(const absl::Status& reason);
  void MarkErrorOnDisk();
  absl::Status HandleCorruption(absl::Status status);

  // Shared by the namespace operations (lookup_ops.cc).
  absl::Status RequireWritable() const;  // EROFS with the reason
  absl::StatusOr<InodeRef> GetInode(InodeId id);
  // Locked inode -> stat; Entry with +1 use.
  static void FillStat(const Inode& inode, uint32_t block_bytes, struct stat* out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  Entry MakeEntry(const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  static Timestamp Now();

  // Runs an operation that changes nothing when it fails; after ENOSPC again, when space has been reclaimed.
  template <typename Operation>
  auto WithSpace(Operation operation) {
    auto result = operation();
    for (uint32_t i = 0; i < kSpaceRetries && IsNoSpace(result); ++i) {
      // Once more in any case: something may have been freed since the operation looked.
      if (!data_path_->ReclaimSpace() && i > 0) break;
      result = operation();
    }
    return result;
  }
  static constexpr uint32_t kSpaceRetries = 4;
  static bool IsNoSpace(const absl::Status& status) { return StatusToErrno(status) == ENOSPC; }
  template <typename T>
  static bool IsNoSpace(const absl::StatusOr<T>& result) {
    return IsNoSpace(result.status());
  }

  // create_ops.cc
  absl::StatusOr<Entry> Create(InodeId directory, std::string_view name, const NewInode& wanted);
  absl::StatusOr<Entry> CreateOnce(InodeId directory, std::string_view name, const NewInode& wanted);
  absl::StatusOr<Entry> LinkOnce(InodeId inode, InodeId directory, std::string_view name);
  // rename.cc
  absl::Status RenameOnce(InodeId old_directory, std::string_view old_name, InodeId new_directory,
                          std::string_view new_name, bool replace);

  // truncate.cc
  absl::Status SetSize(const InodeRef& inode, uint64_t size_bytes) ABSL_LOCKS_EXCLUDED(inode->mutex);
  // Frees blocks and inode of an orphan without uses. Runs on a worker.
  absl::Status DeleteUnused(const InodeRef& inode) ABSL_LOCKS_EXCLUDED(inode->mutex);
  absl::Status FinishTruncate(const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  absl::Status TruncateBlocks(const InodeRef& inode, LogicalBlock first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);

  absl::StatusOr<bool> TruncateStep(Handle& handle, const InodeRef& inode, LogicalBlock first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);
  absl::Status ReleaseInode(Handle& handle, const InodeRef& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex);

  std::unique_ptr<BlockDevice> device_;
  VolumeOptions options_;
  VolumeContext context_;
  std::unique_ptr<InodeCache> inode_cache_;
  std::unique_ptr<OrphanList> orphans_;
  std::unique_ptr<DirtyTimes> dirty_times_;
  std::unique_ptr<DataPath> data_path_;
  std::unique_ptr<Syncer> syncer_;
  BufferRef super_block_;                 // the journaled buffer that holds the superblock
  std::atomic<bool> damage_seen_{false};  // errors=continue: marked in the superblock at unmount
  std::atomic<uint64_t> reported_errors_{0};
  bool started_read_write_ = false;
  bool closed_ = false;

  Mutex rename_mutex_;  // outermost: renames between directories, one at a time
  mutable Mutex failure_mutex_;
  std::string read_only_reason_ ABSL_GUARDED_BY(failure_mutex_);
};

}  // namespace elidefs::core
