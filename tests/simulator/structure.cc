#include "tests/simulator/structure.h"

#include <sys/stat.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/geometry.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/inode_layout.h"
#include "core/ondisk/journal_layout.h"
#include "core/ondisk/super_block.h"
#include "core/ondisk/validate.h"

namespace elidefs::simulator {
namespace {

using core::BlockNumber;
using core::GroupNumber;
using core::InodeNumber;

constexpr InodeNumber kResizeInode = 7;
constexpr uint32_t kDoubleIndirect = 13;  // slot of i_block

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Fault(absl::StrCat(parts...));
}

bool HasBackup(const core::Geometry& geometry, GroupNumber group) {
  if (group <= 1 || (geometry.feature_ro_compat & core::kRoCompatSparseSuper) == 0) return true;
  for (const uint64_t factor : {3, 5, 7}) {
    for (uint64_t power = factor; power <= group; power *= factor) {
      if (power == group) return true;
    }
  }
  return false;
}

class Checker {
 public:
  explicit Checker(const blockio::SectorImage& image) : image_(image) {}

  void Check() {
    ReadSuperBlock();
    ReadGroups();
    for (InodeNumber inode = 1; inode <= geometry_.inode_count; ++inode) {
      if (IsInodeUsed(inode)) CheckInode(inode);
    }
    CheckLinks();
    CheckBitmapsAndCounts();
  }

 private:
  struct Group {
    core::GroupDescriptor descriptor;
    BlockNumber block_bitmap = 0;
    BlockNumber inode_bitmap = 0;
    BlockNumber inode_table = 0;
    std::vector<uint8_t> inodes;  // the bitmap
    uint32_t directories = 0;
  };
  struct Seen {
    uint16_t mode = 0;
    uint32_t links = 0;    // as stated
    uint32_t names = 0;    // found, "." and ".." not counted
    uint32_t folders = 0;  // subdirectories
  };

  std::vector<uint8_t> Block(BlockNumber block) const {
    if (block >= geometry_.block_count) Fail("block ", block, " lies beyond the volume");
    std::vector<uint8_t> bytes(geometry_.block_bytes);
    image_.Read(block << geometry_.block_shift, bytes.data(), bytes.size());
    return bytes;
  }
  void Use(BlockNumber first, uint64_t count, const std::string& what) {
    if (first < geometry_.first_data_block || count > geometry_.block_count || first > geometry_.block_count - count) {
      Fail(what, ": blocks ", first, "+", count, " lie outside the volume");
    }
    for (BlockNumber block = first; block < first + count; ++block) {
      if (used_[block]) Fail(what, ": block ", block, " is used twice");
      used_[block] = true;
    }
  }
  bool IsInodeUsed(InodeNumber inode) const {
    const std::vector<uint8_t>& bitmap = groups_[geometry_.GroupOfInode(inode)].inodes;
    const uint32_t bit = (inode - 1) % geometry_.inodes_per_group;
    return !bitmap.empty() && (bitmap[bit / 8] >> (bit % 8) & 1U) != 0;
  }

  void ReadSuperBlock();
  void ReadGroups();
  void UseSystemBlocks(GroupNumber group);
  void CheckInode(InodeNumber number);
  uint64_t CheckMapping(InodeNumber number, const core::RawInode& raw, std::map<uint64_t, BlockNumber>* blocks);
  uint64_t CheckExtents(InodeNumber number, uint32_t seed, const uint8_t* node, uint32_t depth, uint64_t* next,
                        std::map<uint64_t, BlockNumber>* blocks);
  void CheckDirectory(InodeNumber number, const core::RawInode& raw, const std::map<uint64_t, BlockNumber>& blocks);
  void CheckName(InodeNumber directory, InodeNumber target, const std::string& name, uint8_t type);
  void CheckJournal(const core::RawInode& raw, const std::map<uint64_t, BlockNumber>& blocks);
  void CheckLinks() const;
  void CheckBitmapsAndCounts() const;

  const blockio::SectorImage& image_;
  core::SuperBlock super_ = {};
  core::Geometry geometry_;
  std::vector<Group> groups_;
  std::vector<bool> used_;
  std::map<InodeNumber, Seen> seen_;
};

void Checker::ReadSuperBlock() {
  std::vector<uint8_t> bytes(4096);
  image_.Read(0, bytes.data(), bytes.size());
  std::memcpy(&super_, bytes.data() + core::kSuperBlockOffsetBytes, sizeof(super_));
  const absl::StatusOr<core::Geometry> geometry = core::ValidateSuperBlock(super_, image_.size_bytes(), 512, true);
  if (!geometry.ok()) Fail(geometry.status().ToString());
  geometry_ = *geometry;
  if ((super_.s_feature_incompat & core::kIncompatRecover) != 0) Fail("needs_recovery is set");
  if ((super_.s_state & core::kStateValid) == 0) Fail("the state is not clean");
  if ((super_.s_state & core::kStateErrors) != 0) Fail("marked with errors");
  if (super_.s_last_orphan != 0) Fail("inode ", uint32_t{super_.s_last_orphan}, " is on the orphan list");
  used_.assign(geometry_.block_count, false);
}

void Checker::ReadGroups() {
  for (GroupNumber number = 0; number < geometry_.group_count; ++number) {
    const uint64_t at = uint64_t{number} * geometry_.descriptor_bytes;
    const BlockNumber table = geometry_.first_data_block + 1 + (at >> geometry_.block_shift);
    const std::vector<uint8_t> block = Block(table);
    const uint8_t* raw = block.data() + (at & (geometry_.block_bytes - 1));
    if (!core::VerifyGroupDescriptor(geometry_, number, raw)) Fail("group ", number, ": wrong checksum");
    Group group;
    std::memset(&group.descriptor, 0, sizeof(group.descriptor));
    std::memcpy(&group.descriptor, raw, std::min<size_t>(geometry_.descriptor_bytes, sizeof(group.descriptor)));
    const core::GroupDescriptor& d = group.descriptor;
    group.block_bitmap = (uint64_t{d.bg_block_bitmap_hi} << 32U) | d.bg_block_bitmap_lo;
    group.inode_bitmap = (uint64_t{d.bg_inode_bitmap_hi} << 32U) | d.bg_inode_bitmap_lo;
    group.inode_table = (uint64_t{d.bg_inode_table_hi} << 32U) | d.bg_inode_table_lo;
    if ((d.bg_flags & core::kGroupInodeUninit) == 0) {
      group.inodes = Block(group.inode_bitmap);
      const uint32_t stated = (uint32_t{d.bg_inode_bitmap_csum_hi} << 16U) | d.bg_inode_bitmap_csum_lo;
      const uint32_t mask = geometry_.descriptor_bytes >= 64 ? 0xFFFFFFFFU : 0xFFFFU;
      if (geometry_.metadata_csum() &&
          (core::InodeBitmapChecksum(geometry_, group.inodes.data()) & mask) != (stated & mask)) {
        Fail("group ", number, ": the inode bitmap's checksum is wrong");
      }
    }
    groups_.push_back(std::move(group));
  }
  for (GroupNumber number = 0; number < geometry_.group_count; ++number) UseSystemBlocks(number);
}

void Checker::UseSystemBlocks(GroupNumber number) {
  const Group& group = groups_[number];
  const std::string what = absl::StrCat("group ", number);
  if (HasBackup(geometry_, number)) {
    Use(geometry_.FirstBlockOfGroup(number), 1 + geometry_.DescriptorBlockCount() + geometry_.reserved_gdt_blocks,
        what);
  }
  Use(group.block_bitmap, 1, what);
  Use(group.inode_bitmap, 1, what);
  Use(group.inode_table, geometry_.InodeTableBlocksPerGroup(), what);
}

void Checker::CheckInode(InodeNumber number) {
  Group& group = groups_[geometry_.GroupOfInode(number)];
  const uint32_t index = (number - 1) % geometry_.inodes_per_group;
  const uint64_t at = uint64_t{index} * geometry_.inode_bytes;
  const std::vector<uint8_t> block = Block(group.inode_table + (at >> geometry_.block_shift));
  const uint8_t* bytes = block.data() + (at & (geometry_.block_bytes - 1));
  const bool reserved = number < geometry_.first_inode && number != core::kRootInode;
  core::RawInode raw;
  std::memcpy(&raw, bytes, sizeof(raw));
  if (reserved && raw.i_mode == 0 && raw.i_links_count == 0) return;
  if (!core::VerifyInode(geometry_, number, bytes)) Fail("inode ", number, ": wrong checksum");
  if (!reserved && raw.i_dtime != 0) Fail("inode ", number, " is in use and has a time of deletion");
  Seen seen;
  seen.mode = raw.i_mode;
  seen.links = raw.i_links_count;
  seen_[number].mode = seen.mode;
  seen_[number].links = seen.links;
  std::map<uint64_t, BlockNumber> blocks;
  const uint64_t used_blocks = CheckMapping(number, raw, &blocks);
  const uint64_t sectors = (uint64_t{raw.i_blocks_high} << 32U) | raw.i_blocks_lo;
  if (number != kResizeInode && sectors != used_blocks * (geometry_.block_bytes / 512)) {
    Fail("inode ", number, ": i_blocks is ", sectors, ", but it has ", used_blocks, " blocks");
  }
  const uint64_t size = (uint64_t{raw.i_size_high} << 32U) | raw.i_size_lo;
  if (S_ISDIR(raw.i_mode)) {
    ++group.directories;
    if (blocks.size() != size >> geometry_.block_shift) Fail("directory ", number, ": size ", size, " and holes");
    CheckDirectory(number, raw, blocks);
  } else if (S_ISREG(raw.i_mode) && !reserved && !blocks.empty() &&
             blocks.rbegin()->first >= (size + geometry_.block_bytes - 1) >> geometry_.block_shift) {
    Fail("inode ", number, ": a block lies behind the end of file");
  }
  if (number == super_.s_journal_inum) CheckJournal(raw, blocks);
}

uint64_t Checker::CheckMapping(InodeNumber number, const core::RawInode& raw, std::map<uint64_t, BlockNumber>* blocks) {
  uint64_t count = 0;
  const uint64_t xattr = (uint64_t{raw.i_file_acl_high} << 32U) | raw.i_file_acl_lo;
  if (xattr != 0) {
    Use(xattr, 1, absl::StrCat("inode ", number));
    ++count;
  }
  if ((raw.i_flags & core::kInodeExtents) != 0) {
    const uint32_t seed = core::InodeChecksumSeed(geometry_, number, raw.i_generation);
    core::ExtentHeader header;
    std::memcpy(&header, raw.i_block, sizeof(header));
    if (header.eh_max > 4)
      Fail("inode ", number, ": the root of its extents claims ", uint16_t{header.eh_max}, " slots");
    uint64_t next = 0;
    return count + CheckExtents(number, seed, raw.i_block, header.eh_depth, &next, blocks);
  }
  if (number == kResizeInode) {
    // Block-mapped over the reserved descriptor blocks, which are counted with the groups.
    uint32_t block = 0;
    std::memcpy(&block, raw.i_block + size_t{4} * kDoubleIndirect, sizeof(block));
    if (block != 0) Use(block, 1, "the resize inode");
  }
  return count;
}

uint64_t Checker::CheckExtents(InodeNumber number, uint32_t seed, const uint8_t* node, uint32_t depth, uint64_t* next,
                               std::map<uint64_t, BlockNumber>* blocks) {
  core::ExtentHeader header;
  std::memcpy(&header, node, sizeof(header));
  if (header.eh_magic != core::kExtentMagic || header.eh_depth != depth || depth > core::kExtentMaxDepth ||
      header.eh_entries > header.eh_max) {
    Fail("inode ", number, ": an extent node's header is wrong");
  }
  uint64_t count = 0;
  for (uint32_t i = 0; i < header.eh_entries; ++i) {
    const uint8_t* slot = node + sizeof(header) + i * sizeof(core::ExtentLeaf);
    if (depth > 0) {
      core::ExtentIndex index;
      std::memcpy(&index, slot, sizeof(index));
      if (index.ei_block < *next) Fail("inode ", number, ": index entries are out of order");
      *next = index.ei_block;
      const BlockNumber child = (uint64_t{index.ei_leaf_hi} << 32U) | index.ei_leaf_lo;
      Use(child, 1, absl::StrCat("extent node of inode ", number));
      const std::vector<uint8_t> bytes = Block(child);
      core::ExtentHeader child_header;
      std::memcpy(&child_header, bytes.data(), sizeof(child_header));
      if (child_header.eh_max > (geometry_.block_bytes - sizeof(child_header)) / sizeof(core::ExtentLeaf) ||
          !core::VerifyExtentBlockChecksum(geometry_, seed, bytes.data())) {
        Fail("inode ", number, ": extent block ", child, " has a wrong checksum");
      }
      if (child_header.eh_entries == 0) Fail("inode ", number, ": extent block ", child, " is empty");
      count += 1 + CheckExtents(number, seed, bytes.data(), depth - 1, next, blocks);
      continue;
    }
    core::ExtentLeaf leaf;
    std::memcpy(&leaf, slot, sizeof(leaf));
    const uint32_t length =
        leaf.ee_len > core::kExtentMaxInitBlocks ? leaf.ee_len - core::kExtentMaxInitBlocks : uint32_t{leaf.ee_len};
    if (length == 0 || leaf.ee_block < *next) Fail("inode ", number, ": extents overlap or are empty");
    *next = uint64_t{leaf.ee_block} + length;
    const BlockNumber start = (uint64_t{leaf.ee_start_hi} << 32U) | leaf.ee_start_lo;
    Use(start, length, absl::StrCat("inode ", number));
    for (uint32_t block = 0; block < length; ++block) (*blocks)[uint64_t{leaf.ee_block} + block] = start + block;
    count += length;
  }
  return count;
}

void Checker::CheckDirectory(InodeNumber number, const core::RawInode& raw,
                             const std::map<uint64_t, BlockNumber>& blocks) {
  const uint32_t seed = core::InodeChecksumSeed(geometry_, number, raw.i_generation);
  const bool indexed = (raw.i_flags & core::kInodeIndex) != 0;
  for (const auto& [logical, physical] : blocks) {
    const std::vector<uint8_t> block = Block(physical);
    if (geometry_.metadata_csum() && !indexed && !core::VerifyDirectoryLeafChecksum(geometry_, seed, block.data())) {
      Fail("directory ", number, ": block ", physical, " has a wrong checksum");
    }
    for (uint32_t at = 0; at < geometry_.block_bytes;) {
      core::RawDirectoryEntry entry;
      std::memcpy(&entry, block.data() + at, sizeof(entry));
      const uint32_t length = entry.rec_len;
      if (length < sizeof(entry) || length % 4 != 0 || length > geometry_.block_bytes - at) {
        Fail("directory ", number, ": an entry of ", length, " bytes at ", at, " of block ", physical);
      }
      const auto* text = reinterpret_cast<const char*>(block.data() + at + sizeof(entry));
      if (entry.inode != 0 && sizeof(entry) + entry.name_len > length) Fail("directory ", number, ": a name too long");
      if (entry.inode != 0) CheckName(number, entry.inode, std::string(text, entry.name_len), entry.file_type);
      at += length;
    }
  }
}

void Checker::CheckName(InodeNumber directory, InodeNumber target, const std::string& name, uint8_t type) {
  if (target > geometry_.inode_count || !IsInodeUsed(target)) {
    Fail("directory ", directory, ": '", name, "' names inode ", target, ", which is not in use");
  }
  if (name == ".") {
    if (target != directory) Fail("directory ", directory, ": '.' is inode ", target);
  } else if (name == "..") {
    ++seen_[target].folders;  // the root's own is taken off in CheckLinks
  } else {
    ++seen_[target].names;
    if (geometry_.has_filetype() && type == 0) Fail("directory ", directory, ": '", name, "' has no type");
  }
}

void Checker::CheckJournal(const core::RawInode& /*raw*/, const std::map<uint64_t, BlockNumber>& blocks) {
  if (blocks.empty() || blocks.begin()->first != 0) Fail("the journal has no first block");
  const std::vector<uint8_t> block = Block(blocks.begin()->second);
  core::JournalSuperBlock journal;
  std::memcpy(&journal, block.data(), sizeof(journal));
  if (journal.s_start != 0) Fail("the log is not empty");
  if (journal.s_errno != 0) Fail("the journal is marked with errors");
}

void Checker::CheckLinks() const {
  for (const auto& [number, seen] : seen_) {
    const bool reserved = number < geometry_.first_inode && number != core::kRootInode;
    if (reserved) continue;
    if (number != core::kRootInode && seen.names == 0) Fail("inode ", number, " has no name");
    if (S_ISDIR(seen.mode)) {
      const uint32_t folders = seen.folders - (number == core::kRootInode ? 1 : 0);
      if (number != core::kRootInode && seen.names != 1) Fail("directory ", number, " has ", seen.names, " names");
      if (seen.links != 2 + folders) Fail("directory ", number, ": link count ", seen.links, ", ", folders, " inside");
    } else if (seen.links != seen.names) {
      Fail("inode ", number, ": link count ", seen.links, ", ", seen.names, " names");
    }
  }
}

void Checker::CheckBitmapsAndCounts() const {
  uint64_t free_blocks = 0;
  uint64_t free_inodes = 0;
  for (GroupNumber number = 0; number < geometry_.group_count; ++number) {
    const Group& group = groups_[number];
    const core::GroupDescriptor& d = group.descriptor;
    std::vector<uint8_t> bitmap;
    if ((d.bg_flags & core::kGroupBlockUninit) == 0) {
      bitmap = Block(group.block_bitmap);
      const uint32_t stated = (uint32_t{d.bg_block_bitmap_csum_hi} << 16U) | d.bg_block_bitmap_csum_lo;
      const uint32_t mask = geometry_.descriptor_bytes >= 64 ? 0xFFFFFFFFU : 0xFFFFU;
      if (geometry_.metadata_csum() &&
          (core::BlockBitmapChecksum(geometry_, bitmap.data()) & mask) != (stated & mask)) {
        Fail("group ", number, ": the block bitmap's checksum is wrong");
      }
    }
    uint32_t free = 0;
    for (uint32_t bit = 0; bit < geometry_.BlocksInGroup(number); ++bit) {
      const BlockNumber block = geometry_.FirstBlockOfGroup(number) + bit;
      const bool marked = bitmap.empty() ? used_[block] : (bitmap[bit / 8] >> (bit % 8) & 1U) != 0;
      if (marked != used_[block]) Fail("block ", block, marked ? " is marked used" : " is in use", " and is not");
      if (!marked) ++free;
    }
    uint32_t inodes = 0;
    uint32_t last_used = 0;
    for (uint32_t bit = 0; bit < geometry_.inodes_per_group; ++bit) {
      if (!IsInodeUsed(number * geometry_.inodes_per_group + bit + 1)) continue;
      ++inodes;
      last_used = bit + 1;
    }
    const auto wide = [](uint16_t low, uint16_t high) { return (uint32_t{high} << 16U) | low; };
    const uint32_t stated_free = wide(d.bg_free_blocks_count_lo, d.bg_free_blocks_count_hi);
    if (stated_free != free) Fail("group ", number, ": ", free, " free blocks, stated ", stated_free);
    const uint32_t stated_inodes = wide(d.bg_free_inodes_count_lo, d.bg_free_inodes_count_hi);
    if (stated_inodes != geometry_.inodes_per_group - inodes) Fail("group ", number, ": wrong count of free inodes");
    if (wide(d.bg_used_dirs_count_lo, d.bg_used_dirs_count_hi) != group.directories) {
      Fail("group ", number, ": wrong count of directories");
    }
    if (last_used + wide(d.bg_itable_unused_lo, d.bg_itable_unused_hi) > geometry_.inodes_per_group) {
      Fail("group ", number, ": an inode in use lies in the unused part of the table");
    }
    free_blocks += free;
    free_inodes += stated_inodes;
  }
  const uint64_t stated = (uint64_t{super_.s_free_blocks_count_hi} << 32U) | super_.s_free_blocks_count_lo;
  if (stated != free_blocks) Fail("superblock: ", free_blocks, " free blocks, stated ", stated);
  if (super_.s_free_inodes_count != free_inodes) Fail("superblock: wrong count of free inodes");
}

}  // namespace

std::string CheckStructure(const blockio::SectorImage& image) {
  try {
    Checker(image).Check();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

}  // namespace elidefs::simulator
