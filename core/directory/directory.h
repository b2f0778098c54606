// Directory: names in one directory. Reads linear and indexed (htree) directories; adds to and removes from linear
// ones, removes from indexed ones too (the entry's leaf only). Adding to an indexed directory: EOPNOTSUPP. The
// directory inode's mutex is held by the caller. Every block is checked before use (entry lengths, names, inode
// numbers, checksum); damage is EUCLEAN and names block and inode.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

inline constexpr size_t kMaxNameBytes = 255;

struct DirectoryMatch {
  InodeNumber inode = 0;  // 0: not found
  uint8_t file_type = kTypeUnknown;
};

class Directory {
 public:
  // A named local variable tells the thread-safety analysis that the directory's inode is the locked one.
  Directory(VolumeContext* context, Inode* inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode->mutex)
      ABSL_ASSERT_EXCLUSIVE_LOCK(inode_->mutex)
      : context_(context), inode_(inode) {}

  absl::StatusOr<DirectoryMatch> Find(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // The entry must not exist. May allocate a block (extent insertion included) and grow i_size; then the caller writes
  // the inode. Credits: AddCredits().
  absl::Status Add(Handle& handle, std::string_view name, InodeNumber target, uint8_t file_type)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  absl::Status Remove(Handle& handle, std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // Points an existing entry at another inode (rename over an existing name, ".." of a moved directory).
  absl::Status Retarget(Handle& handle, std::string_view name, InodeNumber target, uint8_t file_type)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  // First block of a new directory: "." and "..". The inode has an empty extent root.
  absl::Status InitializeEmpty(Handle& handle, InodeNumber parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  absl::StatusOr<bool> IsEmpty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  absl::StatusOr<InodeNumber> Parent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);

  struct Entry {
    std::string_view name;
    InodeNumber inode;
    uint8_t file_type;
    uint64_t next_cookie;  // pass to ForEach to continue behind this entry; never 0
  };
  // Entries from `cookie` (0: start) on, "." and ".." included, until the visitor returns false. In both formats a
  // cookie is the byte position behind an entry (htree blocks are visited as the linear directory they also are, index
  // blocks skipped); an entry removed meanwhile is skipped, the position is re-synchronised to an entry boundary within
  // its block.
  absl::Status ForEach(uint64_t cookie, const std::function<bool(const Entry&)>& visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);

  // Worst case of Add: leaf, extent insertion, allocation.
  uint32_t AddCredits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode_->mutex);
  static constexpr uint32_t kRemoveCredits = 1;
  static constexpr uint32_t kRetargetCredits = 1;
  static constexpr uint32_t kInitializeCredits = 6;

 private:
  VolumeContext* const context_;
  Inode* const inode_;
};

}  // namespace elidefs::core
