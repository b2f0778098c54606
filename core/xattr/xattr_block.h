// The separate extended-attribute block of an inode. Attributes themselves are not served yet; deletion of an inode
// must give its block back all the same. Source: Documentation/filesystems/ext4, "Extended Attributes".
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "base/endian.h"
#include "core/inode/inode.h"
#include "core/volume_context.h"

namespace elidefs::core {

inline constexpr uint32_t kXattrMagic = 0xEA020000U;

struct XattrHeader {
  Le32 h_magic;
  Le32 h_refcount;  // inodes that share the block
  Le32 h_blocks;    // always 1
  Le32 h_hash;
  Le32 h_checksum;
  Le32 h_reserved[3];
};
static_assert(sizeof(XattrHeader) == 32 && offsetof(XattrHeader, h_checksum) == 16);

inline constexpr uint32_t kXattrReleaseCredits = 3;  // the block, or its bitmap, descriptor and revoke

// Takes the inode's reference away from its block, frees the block when it was the last. Sets inode.xattr_block to 0
// and lowers blocks_512; the caller writes the inode. Nothing to do without a block. EUCLEAN when the block is damaged.
absl::Status ReleaseXattrBlock(VolumeContext* context, Handle& handle, Inode& inode)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

}  // namespace elidefs::core
