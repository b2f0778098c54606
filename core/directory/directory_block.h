// DirectoryReader and DirectoryBlock: the blocks of one directory, checked before anything in them is used. Sources:
// Documentation/filesystems/ext4, "Linear (Classic) Directories" and "Hash Tree Directories".
//
// Under the directory inode's mutex. A block object holds its buffer; names point into it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache/block_cache.h"
#include "core/inode/inode.h"
#include "core/journal/journal.h"
#include "core/ondisk/inode_layout.h"
#include "core/volume_context.h"

namespace elidefs::core {

inline constexpr uint32_t kEntryHeaderBytes = sizeof(RawDirectoryEntry);
// Bytes that an entry with this name needs; entries are multiples of 4.
inline uint32_t EntryBytes(size_t name_bytes) {
  return (kEntryHeaderBytes + static_cast<uint32_t>(name_bytes) + 3U) & ~3U;
}

inline constexpr uint32_t kDxRootInfoOffset = 24;  // behind "." (12 bytes) and the fixed part of ".." (12 bytes)
inline constexpr uint32_t kDxRootCountOffset = 32;
inline constexpr uint32_t kDxNodeCountOffset = 8;

enum class DirectoryBlockKind : uint8_t {
  kEntries,  // a block of a linear directory or a leaf of an index
  kDxRoot,   // block 0 of an indexed directory: "." and ".." are visible, the rest is index
  kDxNode,   // no visible entries
};

struct DirectoryEntryView {
  uint32_t offset_bytes = 0;  // in the block
  uint32_t record_bytes = 0;
  InodeNumber inode = 0;  // 0: unused
  uint8_t file_type = kTypeUnknown;
  std::string_view name;

  uint32_t used_bytes() const { return inode == 0 ? 0 : EntryBytes(name.size()); }
};

class DirectoryReader;

class DirectoryBlock {
 public:
  DirectoryBlockKind kind() const { return kind_; }
  LogicalBlock logical() const { return logical_; }
  BlockNumber block_number() const { return buffer_->block_number(); }
  uint8_t* data() const { return buffer_->data(); }
  const BufferRef& buffer() const { return buffer_; }
  // Where entries end: before the checksum tail, if the block has one. 0 in a kDxNode.
  uint32_t entries_end() const { return entries_end_; }

  // The checked entry at `offset_bytes` < entries_end(), used or not. EUCLEAN.
  absl::StatusOr<DirectoryEntryView> EntryAt(uint32_t offset_bytes) const;
  RawDirectoryEntry* raw(uint32_t offset_bytes) const {
    return reinterpret_cast<RawDirectoryEntry*>(data() + offset_bytes);
  }
  // Sets the checksum of the modified block and makes it dirty.
  void Seal(Handle& handle) const;
  absl::Status Corrupt(std::string_view fault) const;

 private:
  friend class DirectoryReader;
  const DirectoryReader* reader_ = nullptr;
  BufferRef buffer_;
  LogicalBlock logical_ = 0;
  DirectoryBlockKind kind_ = DirectoryBlockKind::kEntries;
  uint32_t entries_end_ = 0;
};

// Where an entry is, as Remove and Retarget need it.
struct DirectoryPlace {
  DirectoryBlock block;
  DirectoryEntryView entry;
  std::optional<uint32_t> previous_offset_bytes;  // the entry before it in the block
};

class DirectoryReader {
 public:
  // EUCLEAN for an impossible size, ENOTDIR for another kind of inode.
  static absl::StatusOr<DirectoryReader> Open(VolumeContext* context, Inode& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

  VolumeContext& context() const { return *context_; }
  const Geometry& geometry() const { return context_->geometry; }
  InodeNumber inode_number() const { return inode_number_; }
  uint32_t checksum_seed() const { return checksum_seed_; }
  bool indexed() const { return indexed_; }
  LogicalBlock block_count() const { return block_count_; }

  // EUCLEAN for holes and damage. `logical` < block_count().
  absl::StatusOr<DirectoryBlock> ReadBlock(Inode& inode, LogicalBlock logical) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  // The used entry with this name in one block, if any.
  absl::StatusOr<std::optional<DirectoryPlace>> FindInBlock(const DirectoryBlock& block, std::string_view name) const;
  // The entry with this name anywhere: by the index where there is one that can be followed, else by reading every
  // block.
  absl::StatusOr<std::optional<DirectoryPlace>> Locate(Inode& inode, std::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  // A block over a zeroed buffer just allocated at `logical`: one unused entry and the checksum tail. Seal it when
  // filled.
  DirectoryBlock InitializeBlock(LogicalBlock logical, BufferRef buffer) const;

 private:
  absl::StatusOr<BlockNumber> MapBlock(Inode& inode, LogicalBlock logical) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);
  DirectoryBlockKind KindOf(LogicalBlock logical, const uint8_t* bytes) const;
  absl::Status VerifyLoaded(LogicalBlock logical, BlockNumber block, const uint8_t* bytes) const;
  absl::StatusOr<std::optional<DirectoryPlace>> LocateLinear(Inode& inode, std::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

  VolumeContext* context_ = nullptr;
  InodeNumber inode_number_ = 0;
  uint32_t checksum_seed_ = 0;
  bool indexed_ = false;
  LogicalBlock block_count_ = 0;
};

absl::Status DirectoryCorruption(InodeNumber inode, LogicalBlock logical, BlockNumber block, std::string_view fault);

}  // namespace elidefs::core
