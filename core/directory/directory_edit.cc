// Changing directories.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/directory/directory.h"
#include "core/directory/directory_block.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

// The largest directory that tools without large_dir accept.
constexpr uint64_t kMaxLinearDirectoryBytes = 1ULL << 31U;

absl::Status CheckWritable(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  if (inode.HasExtents()) return absl::OkStatus();
  return ErrnoError(
      EOPNOTSUPP, absl::StrCat("directory inode ", inode.number, " is block-mapped (ext3 style): it can be read only"));
}

absl::Status CheckName(InodeNumber directory, std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return ErrnoError(ENAMETOOLONG, absl::StrCat("name of ", name.size(), " bytes in directory inode ", directory));
  }
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    return ErrnoError(EINVAL, absl::StrCat("not a valid name in directory inode ", directory));
  }
  return absl::OkStatus();
}

void WriteEntry(const Geometry& geometry, RawDirectoryEntry* raw, uint32_t record_bytes, std::string_view name,
                InodeNumber target, uint8_t file_type) {
  raw->inode = target;
  raw->rec_len = static_cast<uint16_t>(record_bytes);
  raw->name_len = static_cast<uint8_t>(name.size());
  raw->file_type = geometry.has_filetype() ? file_type : static_cast<uint8_t>(0);
  auto* bytes = reinterpret_cast<uint8_t*>(raw) + kEntryHeaderBytes;
  std::memcpy(bytes, name.data(), name.size());
  const uint32_t padding = EntryBytes(name.size()) - kEntryHeaderBytes - static_cast<uint32_t>(name.size());
  std::memset(bytes + name.size(), 0, padding);
}

// Puts the entry into the slack of the first record with enough of it. The whole block is checked first, so that
// nothing is added to a damaged one.
absl::StatusOr<bool> AddToBlock(Handle& handle, const Geometry& geometry, const DirectoryBlock& block,
                                std::string_view name, InodeNumber target, uint8_t file_type) {
  const uint32_t needed = EntryBytes(name.size());
  std::optional<DirectoryEntryView> room;
  for (uint32_t offset = 0; offset < block.entries_end();) {
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryEntryView entry, block.EntryAt(offset));
    if (!room.has_value() && entry.record_bytes - entry.used_bytes() >= needed) room = entry;
    offset += entry.record_bytes;
  }
  if (!room.has_value()) return false;
  const uint32_t used = room->used_bytes();
  if (used > 0) block.raw(room->offset_bytes)->rec_len = static_cast<uint16_t>(used);
  WriteEntry(geometry, block.raw(room->offset_bytes + used), room->record_bytes - used, name, target, file_type);
  block.Seal(handle);
  return true;
}

// Allocates and maps block `logical`, the directory's new end. The caller fills and seals it.
absl::StatusOr<DirectoryBlock> AppendBlock(VolumeContext* context, Inode& inode, Handle& handle,
                                           const DirectoryReader& reader, LogicalBlock logical)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  ExtentTree tree(context, &inode);
  BlockNumber goal = context->blocks->GoalForInode(inode.number);
  if (logical > 0) {
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping last, tree.Lookup(logical - 1));
    if (!last.is_hole()) goal = last.physical + 1;
  }
  ELIDEFS_ASSIGN_OR_RETURN(const BlockNumber block_number,
                           context->blocks->AllocateMetadata(handle, goal, /*from_promise=*/false));
  absl::StatusOr<BufferRef> buffer = context->cache->GetZeroed(block_number);
  absl::Status status = buffer.status();
  if (status.ok()) {
    status = tree.Insert(handle, logical, block_number, 1, /*unwritten=*/false, /*promised=*/false);
  }
  if (!status.ok()) {
    context->blocks->Free(handle, BlockRange{block_number, 1}, /*metadata=*/true).IgnoreError();
    return status;
  }
  inode.size_bytes = (static_cast<uint64_t>(logical) + 1) * context->geometry.block_bytes;
  inode.disk_size_bytes = inode.size_bytes;
  return reader.InitializeBlock(logical, *std::move(buffer));
}

}  // namespace

uint32_t Directory::AddCredits() const {
  ExtentTree tree(context_, inode_);
  // The block with room, or a new one with its bitmap and descriptor; given back (one revoke) when it cannot be mapped.
  return 1 + 3 + 1 + tree.InsertCredits();
}

absl::Status Directory::Add(Handle& handle, std::string_view name, InodeNumber target, uint8_t file_type) {
  ELIDEFS_RETURN_IF_ERROR(CheckWritable(*inode_));
  ELIDEFS_RETURN_IF_ERROR(CheckName(inode_->number, name));
  if (target == 0 || target > context_->geometry.inode_count) {
    return ErrnoError(EINVAL, absl::StrCat("inode ", target, " cannot be entered into a directory"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  if (reader.indexed()) {
    return ErrnoError(EOPNOTSUPP,
                      absl::StrCat("directory inode ", inode_->number,
                                   " has a hash index: adding names to indexed directories is not supported"));
  }
  // Names are mostly added at the end; earlier blocks have room only where names were removed.
  const LogicalBlock count = reader.block_count();
  for (LogicalBlock i = 0; i < count; ++i) {
    const LogicalBlock logical = i == 0 ? count - 1 : i - 1;
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, reader.ReadBlock(*inode_, logical));
    ELIDEFS_ASSIGN_OR_RETURN(const bool added, AddToBlock(handle, context_->geometry, block, name, target, file_type));
    if (added) return absl::OkStatus();
  }
  if (inode_->size_bytes + context_->geometry.block_bytes > kMaxLinearDirectoryBytes) {
    return ErrnoError(ENOSPC, absl::StrCat("directory inode ", inode_->number, " is as large as the format allows"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, AppendBlock(context_, *inode_, handle, reader, count));
  return AddToBlock(handle, context_->geometry, block, name, target, file_type).status();
}

absl::Status Directory::Remove(Handle& handle, std::string_view name) {
  ELIDEFS_RETURN_IF_ERROR(CheckWritable(*inode_));
  ELIDEFS_RETURN_IF_ERROR(CheckName(inode_->number, name));
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  ELIDEFS_ASSIGN_OR_RETURN(const std::optional<DirectoryPlace> place, reader.Locate(*inode_, name));
  if (!place.has_value()) {
    return ErrnoError(ENOENT, absl::StrCat("no such name in directory inode ", inode_->number));
  }
  const DirectoryBlock& block = place->block;
  const DirectoryEntryView& entry = place->entry;
  if (place->previous_offset_bytes.has_value()) {
    RawDirectoryEntry* previous = block.raw(*place->previous_offset_bytes);
    previous->rec_len = static_cast<uint16_t>(previous->rec_len + entry.record_bytes);
    // The name does not stay behind in the slack.
    std::memset(block.raw(entry.offset_bytes), 0, entry.record_bytes);
  } else {
    const auto record_bytes = static_cast<uint16_t>(entry.record_bytes);
    std::memset(block.raw(entry.offset_bytes), 0, entry.record_bytes);
    block.raw(entry.offset_bytes)->rec_len = record_bytes;
  }
  block.Seal(handle);
  return absl::OkStatus();
}

absl::Status Directory::Retarget(Handle& handle, std::string_view name, InodeNumber target, uint8_t file_type) {
  ELIDEFS_RETURN_IF_ERROR(CheckWritable(*inode_));
  if (target == 0 || target > context_->geometry.inode_count) {
    return ErrnoError(EINVAL, absl::StrCat("inode ", target, " cannot be entered into a directory"));
  }
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  ELIDEFS_ASSIGN_OR_RETURN(const std::optional<DirectoryPlace> place, reader.Locate(*inode_, name));
  if (!place.has_value()) {
    return ErrnoError(ENOENT, absl::StrCat("no such name in directory inode ", inode_->number));
  }
  RawDirectoryEntry* raw = place->block.raw(place->entry.offset_bytes);
  raw->inode = target;
  if (context_->geometry.has_filetype()) raw->file_type = file_type;
  place->block.Seal(handle);
  return absl::OkStatus();
}

absl::Status Directory::InitializeEmpty(Handle& handle, InodeNumber parent) {
  ELIDEFS_RETURN_IF_ERROR(CheckWritable(*inode_));
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, AppendBlock(context_, *inode_, handle, reader, 0));
  const Geometry& geometry = context_->geometry;
  const uint32_t dot_bytes = EntryBytes(1);
  WriteEntry(geometry, block.raw(0), dot_bytes, ".", inode_->number, kTypeDirectory);
  WriteEntry(geometry, block.raw(dot_bytes), block.entries_end() - dot_bytes, "..", parent, kTypeDirectory);
  block.Seal(handle);
  return absl::OkStatus();
}

}  // namespace elidefs::core
