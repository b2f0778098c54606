#include "core/alloc/group_table.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/bitmap.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

absl::Status GroupError(GroupNumber group, std::string_view what) {
  return CorruptionError(absl::StrCat("group ", group, ": ", absl::string_view(what.data(), what.size())));
}

bool IsPowerOf(GroupNumber group, GroupNumber base) {
  uint64_t power = base;
  while (power < group) power *= base;
  return power == group;
}

bool HasHighHalves(const Geometry& geometry) {
  return geometry.descriptor_bytes >= sizeof(GroupDescriptor);
}

// The whole checksum where the descriptor has room for it, else its low half.
bool ChecksumMatches(const Geometry& geometry, uint32_t stored, uint32_t computed) {
  return HasHighHalves(geometry) ? stored == computed : stored == (computed & 0xFFFFU);
}

uint32_t Low16(uint32_t value) {
  return value & 0xFFFFU;
}

}  // namespace

GroupTable::GroupTable(BlockCache* cache, const Geometry* geometry) : cache_(cache), geometry_(geometry) {
  for (GroupNumber group = 0; group < geometry->group_count; ++group) groups_.push_back(std::make_unique<Group>());
}

bool GroupTable::HasGroupChecksums() const {
  return (geometry_->feature_ro_compat & (kRoCompatMetadataCsum | kRoCompatGdtCsum)) != 0;
}

bool GroupTable::GroupHasSuperBlock(GroupNumber group) const {
  if (group == 0) return true;
  if ((geometry_->feature_compat & kCompatSparseSuper2) != 0) {
    return group == geometry_->backup_groups[0] || group == geometry_->backup_groups[1];
  }
  if ((geometry_->feature_ro_compat & kRoCompatSparseSuper) == 0 || group == 1) return true;
  return IsPowerOf(group, 3) || IsPowerOf(group, 5) || IsPowerOf(group, 7);
}

const uint8_t* GroupTable::Descriptor(GroupNumber group) const {
  const uint32_t per_block = geometry_->DescriptorsPerBlock();
  const Buffer& block = *descriptor_blocks_[group / per_block];
  return block.data() + size_t{group % per_block} * geometry_->descriptor_bytes;
}

GroupInfo GroupTable::Decode(const uint8_t* descriptor) const {
  const auto* raw = reinterpret_cast<const GroupDescriptor*>(descriptor);
  GroupInfo info;
  info.block_bitmap = raw->bg_block_bitmap_lo;
  info.inode_bitmap = raw->bg_inode_bitmap_lo;
  info.inode_table = raw->bg_inode_table_lo;
  info.free_blocks = raw->bg_free_blocks_count_lo;
  info.free_inodes = raw->bg_free_inodes_count_lo;
  info.used_directories = raw->bg_used_dirs_count_lo;
  info.unused_inodes = raw->bg_itable_unused_lo;
  info.flags = raw->bg_flags;
  info.block_bitmap_checksum = raw->bg_block_bitmap_csum_lo;
  info.inode_bitmap_checksum = raw->bg_inode_bitmap_csum_lo;
  if (HasHighHalves(*geometry_)) {
    info.block_bitmap |= BlockNumber{raw->bg_block_bitmap_hi} << 32U;
    info.inode_bitmap |= BlockNumber{raw->bg_inode_bitmap_hi} << 32U;
    info.inode_table |= BlockNumber{raw->bg_inode_table_hi} << 32U;
    info.free_blocks |= uint32_t{raw->bg_free_blocks_count_hi} << 16U;
    info.free_inodes |= uint32_t{raw->bg_free_inodes_count_hi} << 16U;
    info.used_directories |= uint32_t{raw->bg_used_dirs_count_hi} << 16U;
    info.unused_inodes |= uint32_t{raw->bg_itable_unused_hi} << 16U;
    info.block_bitmap_checksum |= uint32_t{raw->bg_block_bitmap_csum_hi} << 16U;
    info.inode_bitmap_checksum |= uint32_t{raw->bg_inode_bitmap_csum_hi} << 16U;
  }
  if (!HasGroupChecksums()) {
    info.flags = 0;
    info.unused_inodes = 0;
  }
  return info;
}

absl::Status GroupTable::CheckDescriptor(GroupNumber group) const {
  const uint8_t* descriptor = Descriptor(group);
  if (!VerifyGroupDescriptor(*geometry_, group, descriptor)) return GroupError(group, "descriptor checksum is wrong");
  const GroupInfo info = Decode(descriptor);
  const uint32_t table_blocks = geometry_->InodeTableBlocksPerGroup();
  if (!geometry_->IsDataBlockValid(info.block_bitmap, 1) || !geometry_->IsDataBlockValid(info.inode_bitmap, 1) ||
      !geometry_->IsDataBlockValid(info.inode_table, table_blocks)) {
    return GroupError(group, "bitmap or inode table lies outside the volume");
  }
  const bool flexible = (geometry_->feature_incompat & kIncompatFlexBg) != 0;
  if (!flexible &&
      (geometry_->GroupOfBlock(info.block_bitmap) != group || geometry_->GroupOfBlock(info.inode_bitmap) != group ||
       geometry_->GroupOfBlock(info.inode_table) != group ||
       geometry_->GroupOfBlock(info.inode_table + table_blocks - 1) != group)) {
    return GroupError(group, "bitmap or inode table lies outside the group");
  }
  const uint32_t inodes = geometry_->inodes_per_group;
  if (info.free_blocks > geometry_->BlocksInGroup(group) || info.free_inodes > inodes ||
      info.used_directories > inodes || info.unused_inodes > inodes) {
    return GroupError(group, "a count exceeds the size of the group");
  }
  return absl::OkStatus();
}

absl::Status GroupTable::LoadAll() {
  descriptor_blocks_.clear();
  inode_tables_.clear();
  initial_free_blocks_ = initial_free_inodes_ = initial_directories_ = 0;
  const BlockNumber first = geometry_->SuperBlockNumber() + 1;
  for (uint32_t i = 0; i < geometry_->DescriptorBlockCount(); ++i) {
    ELIDEFS_ASSIGN_OR_RETURN(BufferRef block, cache_->Read(first + i, nullptr));
    descriptor_blocks_.push_back(std::move(block));
  }
  for (GroupNumber number = 0; number < geometry_->group_count; ++number) {
    ELIDEFS_RETURN_IF_ERROR(CheckDescriptor(number));
    const GroupInfo info = Decode(Descriptor(number));
    inode_tables_.push_back(info.inode_table);
    initial_free_blocks_ += uint64_t{info.free_blocks} * geometry_->blocks_per_cluster;
    initial_free_inodes_ += info.free_inodes;
    initial_directories_ += info.used_directories;
    Group& state = *groups_[number];
    MutexLock lock(state.mutex);
    state.busy.clear();
    state.free_unreserved = info.free_blocks;
    state.loaded = false;
    state.corrupt = false;
  }
  return BuildSystemRanges();
}

absl::Status GroupTable::BuildSystemRanges() {
  std::vector<SystemRange> ranges;
  const uint64_t super_blocks = 1 + uint64_t{geometry_->DescriptorBlockCount()} + geometry_->reserved_gdt_blocks;
  for (GroupNumber group = 0; group < geometry_->group_count; ++group) {
    if (GroupHasSuperBlock(group)) {
      const BlockNumber start = group == 0 ? geometry_->SuperBlockNumber() : geometry_->FirstBlockOfGroup(group);
      ranges.push_back({start, std::min(start + super_blocks, geometry_->block_count)});
    }
    const GroupInfo info = Decode(Descriptor(group));
    ranges.push_back({info.block_bitmap, info.block_bitmap + 1});
    ranges.push_back({info.inode_bitmap, info.inode_bitmap + 1});
    ranges.push_back({info.inode_table, info.inode_table + geometry_->InodeTableBlocksPerGroup()});
  }
  return SetSystemRanges(std::move(ranges));
}

absl::Status GroupTable::AddSystemBlocks(const std::vector<BlockRange>& blocks) {
  std::vector<SystemRange> ranges = system_ranges_;
  for (const BlockRange& range : blocks) ranges.push_back({range.start, range.start + range.count});
  return SetSystemRanges(std::move(ranges));
}

absl::Status GroupTable::SetSystemRanges(std::vector<SystemRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  system_ranges_.clear();
  for (const SystemRange& range : ranges) {
    if (!system_ranges_.empty() && range.start < system_ranges_.back().end) {
      return GroupError(geometry_->GroupOfBlock(std::max(range.start, geometry_->first_data_block)),
                        absl::StrCat("two kinds of metadata share block ", range.start));
    }
    if (!system_ranges_.empty() && range.start == system_ranges_.back().end) {
      system_ranges_.back().end = range.end;
    } else {
      system_ranges_.push_back(range);
    }
  }
  system_ranges_.shrink_to_fit();
  return absl::OkStatus();
}

absl::StatusOr<GroupInfo> GroupTable::Read(GroupNumber group) {
  if (group >= geometry_->group_count) return CorruptionError(absl::StrCat("group ", group, " does not exist"));
  return Decode(Descriptor(group));
}

absl::Status GroupTable::Write(Handle& handle, GroupNumber group, const GroupInfo& info) {
  if (group >= geometry_->group_count) return CorruptionError(absl::StrCat("group ", group, " does not exist"));
  const bool high = HasHighHalves(*geometry_);
  if (!high && (info.free_blocks > 0xFFFFU || info.free_inodes > 0xFFFFU || info.used_directories > 0xFFFFU)) {
    return GroupError(group, "a count does not fit the descriptor");
  }
  const uint32_t per_block = geometry_->DescriptorsPerBlock();
  const BufferRef& block = descriptor_blocks_[group / per_block];
  handle.Dirty(block);
  uint8_t* descriptor = block->data() + size_t{group % per_block} * geometry_->descriptor_bytes;
  auto* raw = reinterpret_cast<GroupDescriptor*>(descriptor);
  raw->bg_free_blocks_count_lo = static_cast<uint16_t>(Low16(info.free_blocks));
  raw->bg_free_inodes_count_lo = static_cast<uint16_t>(Low16(info.free_inodes));
  raw->bg_used_dirs_count_lo = static_cast<uint16_t>(Low16(info.used_directories));
  if (high) {
    raw->bg_free_blocks_count_hi = static_cast<uint16_t>(info.free_blocks >> 16U);
    raw->bg_free_inodes_count_hi = static_cast<uint16_t>(info.free_inodes >> 16U);
    raw->bg_used_dirs_count_hi = static_cast<uint16_t>(info.used_directories >> 16U);
  }
  if (!HasGroupChecksums()) return absl::OkStatus();
  raw->bg_flags = info.flags;
  raw->bg_itable_unused_lo = static_cast<uint16_t>(Low16(info.unused_inodes));
  if (high) raw->bg_itable_unused_hi = static_cast<uint16_t>(info.unused_inodes >> 16U);
  if (geometry_->metadata_csum()) {
    raw->bg_block_bitmap_csum_lo = static_cast<uint16_t>(Low16(info.block_bitmap_checksum));
    raw->bg_inode_bitmap_csum_lo = static_cast<uint16_t>(Low16(info.inode_bitmap_checksum));
    if (high) {
      raw->bg_block_bitmap_csum_hi = static_cast<uint16_t>(info.block_bitmap_checksum >> 16U);
      raw->bg_inode_bitmap_csum_hi = static_cast<uint16_t>(info.inode_bitmap_checksum >> 16U);
    }
  }
  SetGroupDescriptorChecksum(*geometry_, group, descriptor);
  return absl::OkStatus();
}

const GroupTable::SystemRange* GroupTable::FirstRangeEndingAfter(BlockNumber block) const {
  const auto found = std::upper_bound(system_ranges_.begin(), system_ranges_.end(), block,
                                      [](BlockNumber value, const SystemRange& range) { return value < range.end; });
  return found == system_ranges_.end() ? nullptr : &*found;
}

bool GroupTable::IsSystemBlock(BlockNumber start, uint64_t count) const {
  const SystemRange* range = FirstRangeEndingAfter(start);
  return range != nullptr && range->start < start + count;
}

BlockNumber GroupTable::SkipSystemBlocks(BlockNumber block) const {
  const SystemRange* range = FirstRangeEndingAfter(block);
  return range != nullptr && range->start <= block ? range->end : block;
}

template <typename Visit>
void GroupTable::ForEachSystemRun(GroupNumber group, Visit visit) const {
  const BlockNumber first = geometry_->FirstBlockOfGroup(group);
  const BlockNumber end = first + geometry_->BlocksInGroup(group);
  const SystemRange* const last = system_ranges_.data() + system_ranges_.size();
  for (const SystemRange* range = FirstRangeEndingAfter(first); range != nullptr && range != last && range->start < end;
       ++range) {
    visit(static_cast<uint32_t>(std::max(range->start, first) - first),
          static_cast<uint32_t>(std::min(range->end, end) - first));
  }
}

absl::Status GroupTable::CheckBlockBitmap(GroupNumber group, const GroupInfo& info, const uint8_t* bitmap) const {
  if (geometry_->metadata_csum() &&
      !ChecksumMatches(*geometry_, info.block_bitmap_checksum, BlockBitmapChecksum(*geometry_, bitmap))) {
    return GroupError(group, absl::StrCat("block bitmap (block ", info.block_bitmap, ") has a wrong checksum"));
  }
  if (geometry_->blocks_per_cluster > 1) return absl::OkStatus();
  bool all_set = true;
  ForEachSystemRun(group, [&](uint32_t first_bit, uint32_t end_bit) {
    all_set = all_set && FindBit(bitmap, first_bit, end_bit, false) == end_bit;
  });
  if (all_set) return absl::OkStatus();
  return GroupError(group, absl::StrCat("block bitmap (block ", info.block_bitmap, ") shows metadata as free"));
}

absl::StatusOr<BufferRef> GroupTable::BlockBitmap(GroupNumber group, const GroupInfo& info) {
  if ((info.flags & kGroupBlockUninit) == 0) {
    return cache_->Read(info.block_bitmap,
                        [&](absl::Span<const uint8_t> bytes) { return CheckBlockBitmap(group, info, bytes.data()); });
  }
  ELIDEFS_ASSIGN_OR_RETURN(BufferRef bitmap, cache_->GetZeroed(info.block_bitmap));
  const auto fill = [&](uint32_t first_bit, uint32_t end_bit) {
    for (uint32_t bit = first_bit; bit < end_bit; ++bit) SetBit(bitmap->data(), bit);
  };
  ForEachSystemRun(group, fill);
  fill(geometry_->BlocksInGroup(group), geometry_->block_bytes * 8);
  return bitmap;
}

uint32_t GroupTable::InitializedInodes(const GroupInfo& info) const {
  if ((info.flags & kGroupInodeUninit) != 0) return 0;
  return geometry_->inodes_per_group - std::min(info.unused_inodes, geometry_->inodes_per_group);
}

absl::Status GroupTable::CheckInodeBitmap(GroupNumber group, const GroupInfo& info, const uint8_t* bitmap) const {
  if (geometry_->metadata_csum() &&
      !ChecksumMatches(*geometry_, info.inode_bitmap_checksum, InodeBitmapChecksum(*geometry_, bitmap))) {
    return GroupError(group, absl::StrCat("inode bitmap (block ", info.inode_bitmap, ") has a wrong checksum"));
  }
  // Slots beyond itable_unused are taken for never written: one in use there would be overwritten.
  const uint32_t inodes = geometry_->inodes_per_group;
  if (FindBit(bitmap, InitializedInodes(info), inodes, true) == inodes) return absl::OkStatus();
  return GroupError(group, absl::StrCat("inode bitmap (block ", info.inode_bitmap, ") has inodes in the unused part"));
}

absl::StatusOr<BufferRef> GroupTable::InodeBitmap(GroupNumber group, const GroupInfo& info) {
  if ((info.flags & kGroupInodeUninit) == 0) {
    return cache_->Read(info.inode_bitmap,
                        [&](absl::Span<const uint8_t> bytes) { return CheckInodeBitmap(group, info, bytes.data()); });
  }
  ELIDEFS_ASSIGN_OR_RETURN(BufferRef bitmap, cache_->GetZeroed(info.inode_bitmap));
  const uint32_t used_bytes = geometry_->inodes_per_group / 8;
  std::memset(bitmap->data() + used_bytes, 0xFF, geometry_->block_bytes - used_bytes);
  return bitmap;
}

void GroupTable::SealBlockBitmap(const Buffer& bitmap, GroupInfo* info) const {
  info->flags = static_cast<uint16_t>(info->flags & ~kGroupBlockUninit);
  info->block_bitmap_checksum = BlockBitmapChecksum(*geometry_, bitmap.data());
}

void GroupTable::SealInodeBitmap(const Buffer& bitmap, GroupInfo* info) const {
  info->flags = static_cast<uint16_t>(info->flags & ~kGroupInodeUninit);
  info->inode_bitmap_checksum = InodeBitmapChecksum(*geometry_, bitmap.data());
}

absl::StatusOr<BlockNumber> GroupTable::InodeTableBlock(InodeNumber inode, uint32_t* offset_bytes) {
  if (inode == 0 || inode > geometry_->inode_count) {
    return CorruptionError(absl::StrCat("inode ", inode, " lies beyond the volume's ", geometry_->inode_count));
  }
  const uint32_t index = (inode - 1) % geometry_->inodes_per_group;
  *offset_bytes = index % geometry_->InodesPerBlock() * geometry_->inode_bytes;
  return inode_tables_[geometry_->GroupOfInode(inode)] + index / geometry_->InodesPerBlock();
}

absl::Status GroupTable::BlankInodeTableBlock(GroupNumber group, uint32_t index) {
  return cache_->GetZeroed(inode_tables_[group] + index / geometry_->InodesPerBlock()).status();
}

absl::StatusOr<bool> GroupTable::IsInodeTableSlotUninitialized(InodeNumber inode) {
  if (inode == 0 || inode > geometry_->inode_count) {
    return CorruptionError(absl::StrCat("inode ", inode, " lies beyond the volume's ", geometry_->inode_count));
  }
  const GroupNumber number = geometry_->GroupOfInode(inode);
  MutexLock lock(groups_[number]->mutex);
  return (inode - 1) % geometry_->inodes_per_group >= InitializedInodes(Decode(Descriptor(number)));
}

}  // namespace elidefs::core
