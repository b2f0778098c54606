// Geometry: the constants of one mounted volume, validated once at open (core/ondisk/validate.h) and trusted
// afterwards.
#pragma once

#include <cstdint>

#include "core/ondisk/super_block.h"

namespace elidefs::core {

using BlockNumber = uint64_t;   // filesystem block on the device
using LogicalBlock = uint32_t;  // block within a file
using InodeNumber = uint32_t;
using GroupNumber = uint32_t;

struct BlockRange {
  BlockNumber start = 0;
  uint32_t count = 0;
};

struct Geometry {
  uint32_t block_bytes = 0;
  uint32_t block_shift = 0;
  BlockNumber block_count = 0;
  BlockNumber first_data_block = 0;
  uint32_t blocks_per_group = 0;
  uint32_t inodes_per_group = 0;
  InodeNumber inode_count = 0;
  InodeNumber first_inode = 0;  // first non-reserved
  uint32_t inode_bytes = 0;
  uint32_t descriptor_bytes = 0;  // 32 or s_desc_size
  GroupNumber group_count = 0;
  uint32_t groups_per_flex = 1;
  uint32_t blocks_per_cluster = 1;   // above 1 with bigalloc, which is mounted read-only
  uint32_t reserved_gdt_blocks = 0;  // kept behind the descriptors for resize_inode
  uint32_t feature_compat = 0;
  uint32_t feature_incompat = 0;
  uint32_t feature_ro_compat = 0;
  uint32_t checksum_seed = 0;     // s_checksum_seed with csum_seed, else crc32c(~0, uuid)
  uint16_t group_crc16_seed = 0;  // crc16(~0, uuid): descriptors of uninit_bg volumes without metadata_csum
  uint32_t hash_seed[4] = {};
  uint32_t want_extra_inode_bytes = 32;
  uint64_t reserved_blocks = 0;  // s_r_blocks_count
  uint16_t reserved_uid = 0;
  uint16_t reserved_gid = 0;
  uint8_t default_hash_version = 0;
  GroupNumber backup_groups[2] = {};  // with sparse_super2: the groups that hold backups
  bool hash_unsigned = false;         // s_flags says unsigned chars in htree hashes

  bool metadata_csum() const { return (feature_ro_compat & kRoCompatMetadataCsum) != 0; }
  // Without the large_file feature a regular file's size has 31 bits. The mapping may set a lower limit.
  uint64_t MaxFileSizeByFeatures() const {
    return (feature_ro_compat & kRoCompatLargeFile) != 0 ? UINT64_MAX : 0x7FFFFFFFU;
  }
  bool has_64bit() const { return (feature_incompat & kIncompat64Bit) != 0; }
  bool has_filetype() const { return (feature_incompat & kIncompatFiletype) != 0; }
  GroupNumber GroupOfBlock(BlockNumber block) const {
    return static_cast<GroupNumber>((block - first_data_block) / blocks_per_group);
  }
  BlockNumber FirstBlockOfGroup(GroupNumber group) const {
    return first_data_block + static_cast<BlockNumber>(group) * blocks_per_group;
  }
  // The last group may be shorter.
  uint32_t BlocksInGroup(GroupNumber group) const {
    const BlockNumber left = block_count - FirstBlockOfGroup(group);
    return left < blocks_per_group ? static_cast<uint32_t>(left) : blocks_per_group;
  }
  GroupNumber GroupOfInode(InodeNumber inode) const { return (inode - 1) / inodes_per_group; }
  uint32_t DescriptorsPerBlock() const { return block_bytes / descriptor_bytes; }
  uint32_t DescriptorBlockCount() const { return (group_count + DescriptorsPerBlock() - 1) / DescriptorsPerBlock(); }
  uint32_t InodesPerBlock() const { return block_bytes / inode_bytes; }
  uint32_t InodeTableBlocksPerGroup() const {
    return static_cast<uint32_t>((uint64_t{inodes_per_group} * inode_bytes + block_bytes - 1) / block_bytes);
  }
  BlockNumber SuperBlockNumber() const { return block_bytes == 1024 ? 1 : 0; }
  bool IsDataBlockValid(BlockNumber start, uint64_t count) const {
    return start >= first_data_block + 1 && start < block_count && count <= block_count - start;
  }
};

}  // namespace elidefs::core
