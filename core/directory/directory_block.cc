#include "core/directory/directory_block.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/htree.h"
#include "core/extent/extent_node.h"
#include "core/extent/extent_tree.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

constexpr uint64_t kMaxDirectoryBytes = 1ULL << 32U;  // without large_dir the size has 32 bits
constexpr uint32_t kMaxBlockBytes = 32768;  // 64 KiB records do not fit rec_len and have an encoding of their own
constexpr std::string_view kForbiddenCharacters("/\0", 2);

bool HasTail(const uint8_t* bytes, uint32_t block_bytes) {
  const auto* tail = reinterpret_cast<const DirectoryTail*>(bytes + block_bytes - sizeof(DirectoryTail));
  return tail->det_reserved_zero1 == 0 && tail->det_rec_len == sizeof(DirectoryTail) && tail->det_reserved_zero2 == 0 &&
         tail->det_reserved_ft == kDirectoryTailType;
}

}  // namespace

absl::Status DirectoryCorruption(InodeNumber inode, LogicalBlock logical, BlockNumber block, std::string_view fault) {
  return CorruptionError(
      absl::StrCat("directory inode ", inode, ": block ", block, " (logical ", logical, "): ", std::string(fault)));
}

absl::Status DirectoryBlock::Corrupt(std::string_view fault) const {
  return DirectoryCorruption(reader_->inode_number(), logical_, block_number(), fault);
}

absl::StatusOr<DirectoryEntryView> DirectoryBlock::EntryAt(uint32_t offset_bytes) const {
  const auto fault = [&](std::string_view what) {
    return Corrupt(absl::StrCat("entry at byte ", offset_bytes, ": ", std::string(what)));
  };
  if (offset_bytes % 4 != 0 || offset_bytes + kEntryHeaderBytes > entries_end_) return fault("outside the block");
  const RawDirectoryEntry& raw_entry = *raw(offset_bytes);
  DirectoryEntryView entry;
  entry.offset_bytes = offset_bytes;
  entry.record_bytes = raw_entry.rec_len;
  entry.inode = raw_entry.inode;
  const uint32_t name_bytes = raw_entry.name_len;
  if (entry.record_bytes % 4 != 0) return fault("record length is not a multiple of 4");
  if (entry.record_bytes < EntryBytes(name_bytes)) return fault("record is shorter than its name");
  if (entry.record_bytes > entries_end_ - offset_bytes) return fault("record crosses the end of the block");
  if (entry.inode > reader_->geometry().inode_count) return fault("inode number beyond the volume's inodes");
  entry.name = std::string_view(reinterpret_cast<const char*>(data() + offset_bytes + kEntryHeaderBytes), name_bytes);
  if (entry.inode != 0) {
    if (name_bytes == 0) return fault("empty name");
    if (entry.name.find_first_of(kForbiddenCharacters) != std::string_view::npos) return fault("impossible name");
    // Without the feature this byte is the upper half of the name's length, always 0.
    if (reader_->geometry().has_filetype()) entry.file_type = raw_entry.file_type;
  }
  return entry;
}

void DirectoryBlock::Seal(Handle& handle) const {
  const Geometry& geometry = reader_->geometry();
  switch (kind_) {
    case DirectoryBlockKind::kEntries:
      SetDirectoryLeafChecksum(geometry, reader_->checksum_seed(), data());
      break;
    case DirectoryBlockKind::kDxRoot:
      SetDxChecksum(geometry, reader_->checksum_seed(), data(), kDxRootCountOffset);
      break;
    case DirectoryBlockKind::kDxNode:
      SetDxChecksum(geometry, reader_->checksum_seed(), data(), kDxNodeCountOffset);
      break;
  }
  handle.Dirty(buffer_);
}

absl::StatusOr<DirectoryReader> DirectoryReader::Open(VolumeContext* context, Inode& inode) {
  if (!inode.IsDirectory()) {
    return ErrnoError(ENOTDIR, absl::StrCat("inode ", inode.number, " is not a directory"));
  }
  const uint32_t block_bytes = context->geometry.block_bytes;
  if (block_bytes > kMaxBlockBytes) {
    return ErrnoError(EOPNOTSUPP, absl::StrCat("directory inode ", inode.number, ": directories in blocks of ",
                                               block_bytes, " bytes are not supported"));
  }
  if (inode.size_bytes % block_bytes != 0 || inode.size_bytes >= kMaxDirectoryBytes) {
    return CorruptionError(
        absl::StrCat("directory inode ", inode.number, ": impossible size of ", inode.size_bytes, " bytes"));
  }
  DirectoryReader reader;
  reader.context_ = context;
  reader.inode_number_ = inode.number;
  reader.checksum_seed_ = InodeChecksumSeed(context->geometry, inode.number, inode.generation);
  reader.indexed_ = (inode.flags & kInodeIndex) != 0;
  reader.block_count_ = static_cast<LogicalBlock>(inode.size_bytes / block_bytes);
  return reader;
}

absl::StatusOr<BlockNumber> DirectoryReader::MapBlock(Inode& inode, LogicalBlock logical) const {
  ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping, LookupMapping(context_, inode, logical));
  if (mapping.is_hole()) return DirectoryCorruption(inode_number_, logical, 0, "hole in a directory");
  if (mapping.unwritten) {
    return DirectoryCorruption(inode_number_, logical, mapping.physical, "unwritten extent in a directory");
  }
  return mapping.physical;
}

DirectoryBlockKind DirectoryReader::KindOf(LogicalBlock logical, const uint8_t* bytes) const {
  if (!indexed_) return DirectoryBlockKind::kEntries;
  if (logical == 0) return DirectoryBlockKind::kDxRoot;
  // A single unused entry over the whole block: an inner node. With checksums a leaf cannot look like that because of
  // its tail; without, an empty leaf does, and neither shows any entry.
  const auto* first = reinterpret_cast<const RawDirectoryEntry*>(bytes);
  const bool node = first->inode == 0 && first->rec_len == geometry().block_bytes && first->name_len == 0;
  return node ? DirectoryBlockKind::kDxNode : DirectoryBlockKind::kEntries;
}

absl::Status DirectoryReader::VerifyLoaded(LogicalBlock logical, BlockNumber block, const uint8_t* bytes) const {
  bool good = false;
  switch (KindOf(logical, bytes)) {
    case DirectoryBlockKind::kEntries:
      good = VerifyDirectoryLeafChecksum(geometry(), checksum_seed_, bytes);
      break;
    case DirectoryBlockKind::kDxRoot:
      good = VerifyDxChecksum(geometry(), checksum_seed_, bytes, kDxRootCountOffset);
      break;
    case DirectoryBlockKind::kDxNode:
      good = VerifyDxChecksum(geometry(), checksum_seed_, bytes, kDxNodeCountOffset);
      break;
  }
  return good ? absl::OkStatus() : DirectoryCorruption(inode_number_, logical, block, "wrong checksum");
}

absl::StatusOr<DirectoryBlock> DirectoryReader::ReadBlock(Inode& inode, LogicalBlock logical) const {
  ELIDEFS_ASSIGN_OR_RETURN(const BlockNumber block_number, MapBlock(inode, logical));
  const std::pair<LogicalBlock, BlockNumber> place(logical, block_number);
  // Two pointers: the closure fits std::function without allocation.
  const auto verify = [this, &place](absl::Span<const uint8_t> bytes) {
    return VerifyLoaded(place.first, place.second, bytes.data());
  };
  DirectoryBlock block;
  ELIDEFS_ASSIGN_OR_RETURN(block.buffer_, context_->cache->Read(block_number, verify));
  block.reader_ = this;
  block.logical_ = logical;
  block.kind_ = KindOf(logical, block.data());
  switch (block.kind_) {
    case DirectoryBlockKind::kDxNode:
      block.entries_end_ = 0;
      break;
    case DirectoryBlockKind::kDxRoot:
      block.entries_end_ = geometry().block_bytes;
      // ".." spans the index, which would otherwise be read as names.
      if (block.raw(0)->rec_len != EntryBytes(1) ||
          block.raw(EntryBytes(1))->rec_len != geometry().block_bytes - EntryBytes(1)) {
        return block.Corrupt("index root without \".\" and \"..\"");
      }
      break;
    case DirectoryBlockKind::kEntries:
      block.entries_end_ = geometry().block_bytes;
      if (!geometry().metadata_csum()) break;
      // Checked on every access: the cached block may have been verified as something else.
      if (!HasTail(block.data(), geometry().block_bytes)) return block.Corrupt("no checksum tail");
      block.entries_end_ -= sizeof(DirectoryTail);
      break;
  }
  return block;
}

absl::StatusOr<std::optional<DirectoryPlace>> DirectoryReader::FindInBlock(const DirectoryBlock& block,
                                                                           std::string_view name) const {
  std::optional<uint32_t> previous;
  for (uint32_t offset = 0; offset < block.entries_end();) {
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryEntryView entry, block.EntryAt(offset));
    if (entry.inode != 0 && entry.name == name) return DirectoryPlace{block, entry, previous};
    previous = offset;
    offset += entry.record_bytes;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DirectoryPlace>> DirectoryReader::LocateLinear(Inode& inode, std::string_view name) const {
  for (LogicalBlock logical = 0; logical < block_count_; ++logical) {
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, ReadBlock(inode, logical));
    ELIDEFS_ASSIGN_OR_RETURN(std::optional<DirectoryPlace> place, FindInBlock(block, name));
    if (place.has_value()) return place;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DirectoryPlace>> DirectoryReader::Locate(Inode& inode, std::string_view name) const {
  // "." and ".." live in block 0 and are not in the index.
  if (!indexed_ || name == "." || name == "..") return LocateLinear(inode, name);
  HtreeCursor cursor(this, &inode);
  HtreeStep step = cursor.Seek(name);
  while (step == HtreeStep::kLeaf) {
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, ReadBlock(inode, cursor.leaf()));
    if (block.kind() != DirectoryBlockKind::kEntries && geometry().metadata_csum()) {
      step = HtreeStep::kUnusable;
      break;
    }
    ELIDEFS_ASSIGN_OR_RETURN(std::optional<DirectoryPlace> place, FindInBlock(block, name));
    if (place.has_value()) return place;
    step = cursor.NextWithSameHash();
  }
  if (step == HtreeStep::kEnd) return std::nullopt;
  context_->logger.Warning(absl::StrCat("directory inode ", inode_number_,
                                        ": its index cannot be followed, reading all blocks; run e2fsck -D"));
  return LocateLinear(inode, name);
}

DirectoryBlock DirectoryReader::InitializeBlock(LogicalBlock logical, BufferRef buffer) const {
  DirectoryBlock block;
  block.reader_ = this;
  block.buffer_ = std::move(buffer);
  block.logical_ = logical;
  block.entries_end_ = geometry().block_bytes;
  if (geometry().metadata_csum()) {
    block.entries_end_ -= sizeof(DirectoryTail);
    auto* tail = reinterpret_cast<DirectoryTail*>(block.data() + block.entries_end_);
    tail->det_rec_len = sizeof(DirectoryTail);
    tail->det_reserved_ft = kDirectoryTailType;
  }
  block.raw(0)->rec_len = static_cast<uint16_t>(block.entries_end_);
  return block;
}

}  // namespace elidefs::core
