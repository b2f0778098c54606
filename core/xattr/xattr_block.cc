#include "core/xattr/xattr_block.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {

absl::Status ReleaseXattrBlock(VolumeContext* context, Handle& handle, Inode& inode) {
  const BlockNumber block_number = inode.xattr_block;
  if (block_number == 0) return absl::OkStatus();
  // Inodes share attribute blocks: two deletions may meet in one.
  MutexLock lock(context->xattr_mutex);
  const Geometry& geometry = context->geometry;
  const auto damaged = [&](std::string_view what) {
    return context->on_corruption(CorruptionError(absl::StrCat("attribute block ", block_number, " of inode ",
                                                               inode.number, ": ", std::string(what), "; run e2fsck")));
  };
  if (!geometry.IsDataBlockValid(block_number, 1)) return damaged("outside the volume");
  ELIDEFS_ASSIGN_OR_RETURN(const BufferRef buffer, context->cache->Read(block_number, nullptr));
  auto* header = buffer->As<XattrHeader>();
  if (header->h_magic != kXattrMagic || header->h_refcount == 0 || header->h_blocks != 1) return damaged("bad header");
  if (geometry.metadata_csum() && header->h_checksum != XattrBlockChecksum(geometry, block_number, buffer->data())) {
    return damaged("bad checksum");
  }
  if (header->h_refcount > 1) {
    header->h_refcount = header->h_refcount - 1;
    if (geometry.metadata_csum()) header->h_checksum = XattrBlockChecksum(geometry, block_number, buffer->data());
    handle.Dirty(buffer);
  } else {
    ELIDEFS_RETURN_IF_ERROR(context->blocks->Free(handle, {block_number, 1}, /*metadata=*/true));
  }
  inode.xattr_block = 0;
  inode.blocks_512 -= std::min<uint64_t>(inode.blocks_512, geometry.block_bytes / 512);
  return absl::OkStatus();
}

}  // namespace elidefs::core
