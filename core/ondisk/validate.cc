#include "core/ondisk/validate.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/features.h"
#include "core/ondisk/inode_layout.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kMaxLogBlockSize = 6;  // 64 KiB
constexpr uint32_t kMaxLogClusterSize = 20;
constexpr uint32_t kMaxLogGroupsPerFlex = 31;
constexpr uint32_t kGoodOldRevision = 0;
constexpr uint32_t kDynamicRevision = 1;
constexpr uint32_t kGoodOldFirstInode = 11;
constexpr uint32_t kGoodOldDescriptorBytes = 32;
constexpr uint32_t kMaxDescriptorBytes = 1024;
constexpr uint32_t kDefaultExtraInodeBytes = sizeof(RawInode) - kGoodOldInodeBytes;
constexpr uint8_t kChecksumTypeCrc32c = 1;
constexpr uint32_t kFlagUnsignedHash = 0x2;
constexpr uint64_t kMaxBlockCount = 1ULL << 48U;  // what an extent can address

template <typename... Parts>
absl::Status Impossible(const Parts&... parts) {
  return CorruptionError(absl::StrCat("superblock: ", parts..., "; run e2fsck"));
}

uint64_t Join(uint32_t low, uint32_t high, bool has_high) {
  return low | (has_high ? uint64_t{high} << 32U : 0);
}

absl::Status CheckIdentity(const SuperBlock& super_block) {
  if (super_block.s_magic != kExt4Magic) return ErrnoError(EINVAL, "not an ext4 volume (no superblock magic)");
  if (super_block.s_rev_level > kDynamicRevision) {
    return ErrnoError(EOPNOTSUPP, absl::StrCat("unknown ext4 revision ", super_block.s_rev_level.Get()));
  }
  if ((super_block.s_feature_ro_compat & kRoCompatMetadataCsum) == 0) return absl::OkStatus();
  if (super_block.s_checksum_type != kChecksumTypeCrc32c) {
    return Impossible("unknown checksum type ", super_block.s_checksum_type);
  }
  if (super_block.s_checksum != SuperBlockChecksum(super_block)) return Impossible("checksum is wrong");
  return absl::OkStatus();
}

absl::Status DecodeBlocks(const SuperBlock& super_block, uint64_t device_bytes, uint32_t logical_block_bytes,
                          Geometry* geometry) {
  const uint32_t log_block = super_block.s_log_block_size;
  if (log_block > kMaxLogBlockSize) return Impossible("block size 2^", uint64_t{log_block} + 10, " is out of range");
  if (log_block == kMaxLogBlockSize) {
    return ErrnoError(EOPNOTSUPP,
                      "a block size of 64 KiB is not supported; copy the files to a volume with smaller blocks");
  }
  geometry->block_shift = log_block + 10;
  geometry->block_bytes = 1U << geometry->block_shift;
  if (geometry->block_bytes < logical_block_bytes) {
    return ErrnoError(EOPNOTSUPP,
                      absl::StrCat("block size ", geometry->block_bytes, " is below the device's sector of ",
                                   logical_block_bytes, " bytes; copy the volume to another device"));
  }
  const bool bigalloc = (super_block.s_feature_ro_compat & kRoCompatBigalloc) != 0;
  if (bigalloc) {
    const uint32_t log_cluster = super_block.s_log_cluster_size;
    if (log_cluster < log_block || log_cluster > kMaxLogClusterSize) return Impossible("cluster size is out of range");
    geometry->blocks_per_cluster = 1U << (log_cluster - log_block);
  }
  geometry->block_count = Join(super_block.s_blocks_count_lo, super_block.s_blocks_count_hi, geometry->has_64bit());
  geometry->first_data_block = super_block.s_first_data_block;
  const bool small_blocks = geometry->block_bytes == 1024;
  const bool first_is_right = small_blocks
                                  ? geometry->first_data_block == 1 || (bigalloc && geometry->first_data_block == 0)
                                  : geometry->first_data_block == 0;
  if (!first_is_right) return Impossible("first data block ", geometry->first_data_block, " is wrong");
  if (geometry->block_count <= geometry->SuperBlockNumber() + 1 || geometry->block_count > kMaxBlockCount) {
    return Impossible("block count ", geometry->block_count, " is out of range");
  }
  if (geometry->block_count > device_bytes >> geometry->block_shift) {
    return ErrnoError(EINVAL, absl::StrCat("the volume has ", geometry->block_count, " blocks of ",
                                           geometry->block_bytes, " bytes but the device only ", device_bytes,
                                           " bytes; use the whole device, or shrink the volume with resize2fs"));
  }
  geometry->reserved_blocks =
      Join(super_block.s_r_blocks_count_lo, super_block.s_r_blocks_count_hi, geometry->has_64bit());
  if (geometry->reserved_blocks > geometry->block_count) return Impossible("more reserved blocks than blocks");
  return absl::OkStatus();
}

absl::Status DecodeInodes(const SuperBlock& super_block, Geometry* geometry) {
  geometry->inode_bytes = kGoodOldInodeBytes;
  geometry->first_inode = kGoodOldFirstInode;
  if (super_block.s_rev_level != kGoodOldRevision) {
    geometry->inode_bytes = super_block.s_inode_size;
    geometry->first_inode = super_block.s_first_ino;
  }
  if (!std::has_single_bit(geometry->inode_bytes) || geometry->inode_bytes < kGoodOldInodeBytes ||
      geometry->inode_bytes > geometry->block_bytes) {
    return Impossible("inode size ", geometry->inode_bytes, " is out of range");
  }
  geometry->inode_count = super_block.s_inodes_count;
  if (geometry->first_inode < kGoodOldFirstInode || geometry->first_inode > geometry->inode_count) {
    return Impossible("first inode ", geometry->first_inode, " is out of range");
  }
  geometry->want_extra_inode_bytes = 0;
  const uint32_t room = geometry->inode_bytes - kGoodOldInodeBytes;
  if (room == 0) return absl::OkStatus();
  uint32_t want = kDefaultExtraInodeBytes;
  if ((geometry->feature_ro_compat & kRoCompatExtraIsize) != 0) {
    const uint32_t asked = std::max<uint32_t>(super_block.s_want_extra_isize, super_block.s_min_extra_isize);
    if (asked > room || asked % 4 != 0) return Impossible("extra inode size ", asked, " is out of range");
    // A smaller value than the fields we keep would cost timestamps and half a checksum.
    want = std::max(want, asked);
  }
  geometry->want_extra_inode_bytes = want;
  return absl::OkStatus();
}

absl::Status DecodeGroupSizes(const SuperBlock& super_block, Geometry* geometry) {
  const uint64_t bits_per_block = uint64_t{geometry->block_bytes} * 8;
  geometry->blocks_per_group = super_block.s_blocks_per_group;
  const uint64_t ratio = geometry->blocks_per_cluster;
  if (geometry->blocks_per_group == 0 || geometry->blocks_per_group % (8 * ratio) != 0 ||
      geometry->blocks_per_group / ratio > bits_per_block) {
    return Impossible(geometry->blocks_per_group, " blocks per group are out of range");
  }
  if (ratio > 1 && super_block.s_clusters_per_group * ratio != geometry->blocks_per_group) {
    return Impossible("clusters and blocks per group contradict each other");
  }
  geometry->inodes_per_group = super_block.s_inodes_per_group;
  if (geometry->inodes_per_group == 0 || geometry->inodes_per_group % 8 != 0 ||
      geometry->inodes_per_group > bits_per_block) {
    return Impossible(geometry->inodes_per_group, " inodes per group are out of range");
  }
  const uint64_t span = geometry->block_count - geometry->first_data_block;
  const uint64_t groups = (span + geometry->blocks_per_group - 1) / geometry->blocks_per_group;
  // Bounded by this: the inode count has 32 bits and a group at least 8 inodes.
  if (groups * geometry->inodes_per_group != geometry->inode_count) {
    return Impossible(geometry->inode_count, " inodes do not fit ", groups, " groups of ", geometry->inodes_per_group);
  }
  geometry->group_count = static_cast<GroupNumber>(groups);
  return absl::OkStatus();
}

absl::Status DecodeDescriptors(const SuperBlock& super_block, Geometry* geometry) {
  geometry->descriptor_bytes = kGoodOldDescriptorBytes;
  if (geometry->has_64bit()) {
    geometry->descriptor_bytes = super_block.s_desc_size;
    if (!std::has_single_bit(geometry->descriptor_bytes) || geometry->descriptor_bytes < sizeof(GroupDescriptor) ||
        geometry->descriptor_bytes > std::min(geometry->block_bytes, kMaxDescriptorBytes)) {
      return Impossible("group descriptor size ", geometry->descriptor_bytes, " is out of range");
    }
  }
  geometry->reserved_gdt_blocks = super_block.s_reserved_gdt_blocks;
  const uint64_t table_end =
      geometry->SuperBlockNumber() + 1 + geometry->DescriptorBlockCount() + uint64_t{geometry->reserved_gdt_blocks};
  if (geometry->reserved_gdt_blocks > geometry->block_bytes / 4 || table_end > geometry->block_count ||
      geometry->SuperBlockNumber() + 1 - geometry->first_data_block + geometry->DescriptorBlockCount() >
          geometry->blocks_per_group) {
    return Impossible("the group descriptors do not fit the volume");
  }
  if (geometry->InodeTableBlocksPerGroup() >= geometry->block_count) return Impossible("an inode table is too large");
  if ((geometry->feature_incompat & kIncompatFlexBg) == 0) return absl::OkStatus();
  const uint32_t log_flex = super_block.s_log_groups_per_flex;
  if (log_flex > kMaxLogGroupsPerFlex) return Impossible("flex group size 2^", log_flex, " is out of range");
  geometry->groups_per_flex = 1U << log_flex;
  return absl::OkStatus();
}

absl::Status CheckState(const SuperBlock& super_block, const Geometry& geometry, bool read_write) {
  const bool has_journal = (geometry.feature_compat & kCompatHasJournal) != 0;
  const bool recover = (geometry.feature_incompat & kIncompatRecover) != 0;
  const uint32_t journal_inode = super_block.s_journal_inum;
  if (recover && !has_journal) return Impossible("needs_recovery without a journal");
  if (has_journal && (read_write || recover) && (journal_inode == 0 || journal_inode > geometry.inode_count)) {
    return Impossible("journal inode ", journal_inode, " is out of range");
  }
  if (super_block.s_last_orphan > geometry.inode_count) {
    return Impossible("orphan inode ", super_block.s_last_orphan.Get(), " is out of range");
  }
  if (!read_write) return absl::OkStatus();
  if ((geometry.feature_ro_compat & kRoCompatOrphanPresent) != 0 &&
      (geometry.feature_compat & kCompatOrphanFile) == 0) {
    return Impossible("orphan_present without orphan_file");
  }
  if ((super_block.s_state & kStateErrors) != 0) {
    return CorruptionError("the volume is marked with errors; run e2fsck -f, or mount it read-only");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Geometry> ValidateSuperBlock(const SuperBlock& super_block, uint64_t device_bytes,
                                            uint32_t logical_block_bytes, bool read_write) {
  ELIDEFS_RETURN_IF_ERROR(CheckIdentity(super_block));
  ELIDEFS_RETURN_IF_ERROR(CheckFeatures(super_block, read_write));
  Geometry geometry;
  geometry.feature_compat = super_block.s_feature_compat;
  geometry.feature_incompat = super_block.s_feature_incompat;
  geometry.feature_ro_compat = super_block.s_feature_ro_compat;
  ELIDEFS_RETURN_IF_ERROR(DecodeBlocks(super_block, device_bytes, logical_block_bytes, &geometry));
  ELIDEFS_RETURN_IF_ERROR(DecodeInodes(super_block, &geometry));
  ELIDEFS_RETURN_IF_ERROR(DecodeGroupSizes(super_block, &geometry));
  ELIDEFS_RETURN_IF_ERROR(DecodeDescriptors(super_block, &geometry));
  ELIDEFS_RETURN_IF_ERROR(CheckState(super_block, geometry, read_write));

  geometry.checksum_seed = (geometry.feature_incompat & kIncompatCsumSeed) != 0
                               ? super_block.s_checksum_seed.Get()
                               : Crc32c(~0U, super_block.s_uuid, sizeof(super_block.s_uuid));
  geometry.group_crc16_seed = Crc16(0xFFFFU, super_block.s_uuid, sizeof(super_block.s_uuid));
  for (size_t i = 0; i < 4; ++i) geometry.hash_seed[i] = super_block.s_hash_seed[i];
  geometry.default_hash_version = super_block.s_def_hash_version;
  geometry.hash_unsigned = (super_block.s_flags & kFlagUnsignedHash) != 0;
  geometry.reserved_uid = super_block.s_def_resuid;
  geometry.reserved_gid = super_block.s_def_resgid;
  for (size_t i = 0; i < 2; ++i) geometry.backup_groups[i] = super_block.s_backup_bgs[i];
  return geometry;
}

}  // namespace elidefs::core
