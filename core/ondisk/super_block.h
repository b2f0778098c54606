// The ext4 superblock and group descriptor. Source: Documentation/filesystems/ext4, "Super Block", "Block Group
// Descriptors".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/endian.h"

namespace elidefs::core {

inline constexpr uint64_t kSuperBlockOffsetBytes = 1024;
inline constexpr uint16_t kExt4Magic = 0xEF53;

struct SuperBlock {
  Le32 s_inodes_count;
  Le32 s_blocks_count_lo;
  Le32 s_r_blocks_count_lo;
  Le32 s_free_blocks_count_lo;
  Le32 s_free_inodes_count;
  Le32 s_first_data_block;
  Le32 s_log_block_size;
  Le32 s_log_cluster_size;
  Le32 s_blocks_per_group;
  Le32 s_clusters_per_group;
  Le32 s_inodes_per_group;
  Le32 s_mtime;
  Le32 s_wtime;
  Le16 s_mnt_count;
  Le16 s_max_mnt_count;
  Le16 s_magic;
  Le16 s_state;
  Le16 s_errors;
  Le16 s_minor_rev_level;
  Le32 s_lastcheck;
  Le32 s_checkinterval;
  Le32 s_creator_os;
  Le32 s_rev_level;
  Le16 s_def_resuid;
  Le16 s_def_resgid;
  Le32 s_first_ino;
  Le16 s_inode_size;
  Le16 s_block_group_nr;
  Le32 s_feature_compat;
  Le32 s_feature_incompat;
  Le32 s_feature_ro_compat;
  uint8_t s_uuid[16];
  uint8_t s_volume_name[16];
  uint8_t s_last_mounted[64];
  Le32 s_algorithm_usage_bitmap;
  uint8_t s_prealloc_blocks;
  uint8_t s_prealloc_dir_blocks;
  Le16 s_reserved_gdt_blocks;
  uint8_t s_journal_uuid[16];
  Le32 s_journal_inum;
  Le32 s_journal_dev;
  Le32 s_last_orphan;
  Le32 s_hash_seed[4];
  uint8_t s_def_hash_version;
  uint8_t s_jnl_backup_type;
  Le16 s_desc_size;
  Le32 s_default_mount_opts;
  Le32 s_first_meta_bg;
  Le32 s_mkfs_time;
  Le32 s_jnl_blocks[17];
  Le32 s_blocks_count_hi;
  Le32 s_r_blocks_count_hi;
  Le32 s_free_blocks_count_hi;
  Le16 s_min_extra_isize;
  Le16 s_want_extra_isize;
  Le32 s_flags;
  Le16 s_raid_stride;
  Le16 s_mmp_interval;
  Le64 s_mmp_block;
  Le32 s_raid_stripe_width;
  uint8_t s_log_groups_per_flex;
  uint8_t s_checksum_type;
  uint8_t s_encryption_level;
  uint8_t s_reserved_pad;
  Le64 s_kbytes_written;
  Le32 s_snapshot_inum;
  Le32 s_snapshot_id;
  Le64 s_snapshot_r_blocks_count;
  Le32 s_snapshot_list;
  Le32 s_error_count;
  Le32 s_first_error_time;
  Le32 s_first_error_ino;
  Le64 s_first_error_block;
  uint8_t s_first_error_func[32];
  Le32 s_first_error_line;
  Le32 s_last_error_time;
  Le32 s_last_error_ino;
  Le32 s_last_error_line;
  Le64 s_last_error_block;
  uint8_t s_last_error_func[32];
  uint8_t s_mount_opts[64];
  Le32 s_usr_quota_inum;
  Le32 s_grp_quota_inum;
  Le32 s_overhead_blocks;
  Le32 s_backup_bgs[2];
  uint8_t s_encrypt_algos[4];
  uint8_t s_encrypt_pw_salt[16];
  Le32 s_lpf_ino;
  Le32 s_prj_quota_inum;
  Le32 s_checksum_seed;
  uint8_t s_wtime_hi;
  uint8_t s_mtime_hi;
  uint8_t s_mkfs_time_hi;
  uint8_t s_lastcheck_hi;
  uint8_t s_first_error_time_hi;
  uint8_t s_last_error_time_hi;
  uint8_t s_first_error_errcode;
  uint8_t s_last_error_errcode;
  Le16 s_encoding;
  Le16 s_encoding_flags;
  Le32 s_orphan_file_inum;
  Le32 s_reserved[94];
  Le32 s_checksum;
};
static_assert(sizeof(SuperBlock) == 1024);
static_assert(offsetof(SuperBlock, s_magic) == 0x38 && offsetof(SuperBlock, s_uuid) == 0x68);
static_assert(offsetof(SuperBlock, s_journal_inum) == 0xE0 && offsetof(SuperBlock, s_desc_size) == 0xFE);
static_assert(offsetof(SuperBlock, s_blocks_count_hi) == 0x150 && offsetof(SuperBlock, s_error_count) == 0x194);
static_assert(offsetof(SuperBlock, s_checksum_seed) == 0x270 && offsetof(SuperBlock, s_checksum) == 0x3FC);

inline constexpr uint16_t kStateValid = 0x0001;   // cleanly unmounted
inline constexpr uint16_t kStateErrors = 0x0002;  // errors detected
inline constexpr uint16_t kStateOrphans = 0x0004;

enum FeatureCompat : uint32_t {
  kCompatDirPrealloc = 0x1,
  kCompatHasJournal = 0x4,
  kCompatExtAttr = 0x8,
  kCompatResizeInode = 0x10,
  kCompatDirIndex = 0x20,
  kCompatSparseSuper2 = 0x200,
  kCompatFastCommit = 0x400,
  kCompatStableInodes = 0x800,
  kCompatOrphanFile = 0x1000,
};
enum FeatureIncompat : uint32_t {
  kIncompatCompression = 0x1,
  kIncompatFiletype = 0x2,
  kIncompatRecover = 0x4,
  kIncompatJournalDev = 0x8,
  kIncompatMetaBg = 0x10,
  kIncompatExtents = 0x40,
  kIncompat64Bit = 0x80,
  kIncompatMmp = 0x100,
  kIncompatFlexBg = 0x200,
  kIncompatEaInode = 0x400,
  kIncompatDirData = 0x1000,
  kIncompatCsumSeed = 0x2000,
  kIncompatLargeDir = 0x4000,
  kIncompatInlineData = 0x8000,
  kIncompatEncrypt = 0x10000,
  kIncompatCasefold = 0x20000,
};
enum FeatureRoCompat : uint32_t {
  kRoCompatSparseSuper = 0x1,
  kRoCompatLargeFile = 0x2,
  kRoCompatHugeFile = 0x8,
  kRoCompatGdtCsum = 0x10,  // uninit_bg
  kRoCompatDirNlink = 0x20,
  kRoCompatExtraIsize = 0x40,
  kRoCompatQuota = 0x100,
  kRoCompatBigalloc = 0x200,
  kRoCompatMetadataCsum = 0x400,
  kRoCompatReadonly = 0x1000,
  kRoCompatProject = 0x2000,
  kRoCompatSharedBlocks = 0x4000,
  kRoCompatVerity = 0x8000,
  kRoCompatOrphanPresent = 0x10000,
};

// 32 bytes without the 64bit feature (the first half), s_desc_size (at least 64) with it.
struct GroupDescriptor {
  Le32 bg_block_bitmap_lo;
  Le32 bg_inode_bitmap_lo;
  Le32 bg_inode_table_lo;
  Le16 bg_free_blocks_count_lo;
  Le16 bg_free_inodes_count_lo;
  Le16 bg_used_dirs_count_lo;
  Le16 bg_flags;
  Le32 bg_exclude_bitmap_lo;
  Le16 bg_block_bitmap_csum_lo;
  Le16 bg_inode_bitmap_csum_lo;
  Le16 bg_itable_unused_lo;
  Le16 bg_checksum;
  Le32 bg_block_bitmap_hi;
  Le32 bg_inode_bitmap_hi;
  Le32 bg_inode_table_hi;
  Le16 bg_free_blocks_count_hi;
  Le16 bg_free_inodes_count_hi;
  Le16 bg_used_dirs_count_hi;
  Le16 bg_itable_unused_hi;
  Le32 bg_exclude_bitmap_hi;
  Le16 bg_block_bitmap_csum_hi;
  Le16 bg_inode_bitmap_csum_hi;
  Le32 bg_reserved;
};
static_assert(sizeof(GroupDescriptor) == 64 && offsetof(GroupDescriptor, bg_checksum) == 0x1E);
static_assert(offsetof(GroupDescriptor, bg_block_bitmap_hi) == 0x20);

inline constexpr uint16_t kGroupInodeUninit = 0x1;
inline constexpr uint16_t kGroupBlockUninit = 0x2;
inline constexpr uint16_t kGroupInodeZeroed = 0x4;

}  // namespace elidefs::core
