// What the namespace operations of VolumeImpl share: names, file types, checks of locked inodes, and the one way in
// which they write an inode and give up on a half-done change.
//
// Every operation validates first, then opens its handle, then modifies. What fails before the first modification
// leaves nothing behind and is returned as it is; what fails later goes through AbandonChange, because a transaction
// that holds half a change must never be committed.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "core/data/dirty_times.h"
#include "core/directory/directory.h"
#include "core/inode/inode.h"
#include "core/inode/inode_cache.h"
#include "core/volume_context.h"

namespace elidefs::core {

// EXT4_LINK_MAX of the format: the most links of one inode.
inline constexpr uint32_t kMaxLinks = 65000;

// Holds one use of an inode for the time of an operation. Declared before the operation's locks, so that giving the use
// back, which may schedule the deletion, happens without them.
class UseGuard {
 public:
  explicit UseGuard(InodeCache* cache) : cache_(cache) {}
  ~UseGuard() {
    if (inode_ != nullptr) cache_->Unuse(inode_, 1);
  }
  UseGuard(const UseGuard&) = delete;
  UseGuard& operator=(const UseGuard&) = delete;

  // At most once.
  void Hold(InodeRef inode) {
    cache_->Use(inode);
    inode_ = std::move(inode);
  }

 private:
  InodeCache* const cache_;
  InodeRef inode_;
};

// ENOENT (empty), ENAMETOOLONG, EINVAL ('/' or a zero byte). "." and ".." pass: the operations differ about them.
absl::Status CheckName(std::string_view name);
inline bool IsDotName(std::string_view name) {
  return name == "." || name == "..";
}

uint8_t DirectoryTypeOfMode(uint32_t mode);
uint32_t ModeOfDirectoryType(uint8_t file_type);

// ENOENT for an object whose inode is freed, or only waits to be: no links and no uses.
absl::Status CheckAlive(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
// True for a block-mapped (ext3) inode with blocks: it can be read, but not freed by this project.
bool OwnsBlocksWithoutExtents(const Inode& inode, const Geometry& geometry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
// EOPNOTSUPP for such an inode when its last name is about to go.
absl::Status CheckMayDelete(const Inode& inode, const Geometry& geometry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
// ENOTDIR, ENOENT (removed), EPERM (immutable).
absl::Status CheckMayAdd(const Inode& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
// As CheckMayAdd, and EPERM for append-only directories.
absl::Status CheckMayRemove(const Inode& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
// EPERM for immutable and append-only inodes: neither links, unlinks nor renames.
absl::Status CheckMayChangeLinks(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

// Links of directories count "..": with dir_nlink a directory beyond the maximum has one link from then on.
// EMLINK when the format has no room for one more.
absl::Status CheckMayAddSubdirectory(const Geometry& geometry, const Inode& directory)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
void AddSubdirectoryLink(const Geometry& geometry, Inode& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);
void RemoveSubdirectoryLink(Inode& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(directory.mutex);

// Credits: 1.
absl::Status WriteInode(VolumeContext& context, DirtyTimes& dirty_times, Handle& handle, Inode& inode, bool datasync)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

// Gives damage found before any modification to the volume's error policy; other errors pass.
absl::Status ReportDamage(const VolumeContext& context, absl::Status status);
// A change failed half way: the journal aborts, so that the transaction is never committed.
absl::Status AbandonChange(const VolumeContext& context, absl::Status status);

// Device numbers in block_area: the old 16-bit form in the first word if it fits, else the new form in the second.
void EncodeDevice(Inode& inode, uint32_t major_number, uint32_t minor_number)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
uint64_t DecodeDevice(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

}  // namespace elidefs::core
