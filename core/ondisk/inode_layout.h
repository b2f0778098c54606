// The on-disk inode, extent tree nodes and directory entries. Source: Documentation/filesystems/ext4, "Index Nodes",
// "The Contents of inode.i_block", "Directory Entries".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/endian.h"

namespace elidefs::core {

inline constexpr uint32_t kGoodOldInodeBytes = 128;
inline constexpr uint32_t kInodeBlockBytes = 60;

struct RawInode {
  Le16 i_mode;
  Le16 i_uid_lo;
  Le32 i_size_lo;
  Le32 i_atime;
  Le32 i_ctime;
  Le32 i_mtime;
  Le32 i_dtime;  // next orphan while the inode is on the orphan list
  Le16 i_gid_lo;
  Le16 i_links_count;
  Le32 i_blocks_lo;
  Le32 i_flags;
  Le32 i_version_lo;
  uint8_t i_block[kInodeBlockBytes];
  Le32 i_generation;
  Le32 i_file_acl_lo;
  Le32 i_size_high;
  Le32 i_obso_faddr;
  Le16 i_blocks_high;
  Le16 i_file_acl_high;
  Le16 i_uid_high;
  Le16 i_gid_high;
  Le16 i_checksum_lo;
  Le16 i_reserved;
  // Beyond the first 128 bytes, present as far as i_extra_isize reaches.
  Le16 i_extra_isize;
  Le16 i_checksum_hi;
  Le32 i_ctime_extra;
  Le32 i_mtime_extra;
  Le32 i_atime_extra;
  Le32 i_crtime;
  Le32 i_crtime_extra;
  Le32 i_version_hi;
  Le32 i_projid;
};
static_assert(sizeof(RawInode) == 160 && offsetof(RawInode, i_block) == 40);
static_assert(offsetof(RawInode, i_generation) == 100 && offsetof(RawInode, i_checksum_lo) == 0x7C);
static_assert(offsetof(RawInode, i_extra_isize) == 128 && offsetof(RawInode, i_checksum_hi) == 0x82);

enum InodeFlag : uint32_t {
  kInodeSync = 0x8,
  kInodeImmutable = 0x10,
  kInodeAppend = 0x20,
  kInodeNoAtime = 0x80,
  kInodeIndex = 0x1000,      // directory has an htree index
  kInodeHugeFile = 0x40000,  // i_blocks counts filesystem blocks
  kInodeExtents = 0x80000,
  kInodeVerity = 0x100000,
  kInodeEaInode = 0x200000,
  kInodeInlineData = 0x10000000,
  kInodeEncrypt = 0x800,
  kInodeCasefold = 0x40000000,
};

inline constexpr uint32_t kBadBlocksInode = 1;
inline constexpr uint32_t kRootInode = 2;

inline constexpr uint16_t kExtentMagic = 0xF30A;
inline constexpr uint16_t kExtentMaxDepth = 5;
inline constexpr uint32_t kExtentMaxInitBlocks = 32768;  // ee_len above this means unwritten, length ee_len - 32768
inline constexpr uint32_t kExtentMaxUnwrittenBlocks = 32767;

struct ExtentHeader {
  Le16 eh_magic;
  Le16 eh_entries;
  Le16 eh_max;
  Le16 eh_depth;
  Le32 eh_generation;
};
struct ExtentIndex {
  Le32 ei_block;
  Le32 ei_leaf_lo;
  Le16 ei_leaf_hi;
  Le16 ei_unused;
};
struct ExtentLeaf {
  Le32 ee_block;
  Le16 ee_len;
  Le16 ee_start_hi;
  Le32 ee_start_lo;
};
struct ExtentTail {
  Le32 et_checksum;
};
static_assert(sizeof(ExtentHeader) == 12 && sizeof(ExtentIndex) == 12 && sizeof(ExtentLeaf) == 12);
static_assert(sizeof(ExtentTail) == 4 && offsetof(ExtentHeader, eh_depth) == 6);
static_assert(offsetof(ExtentIndex, ei_leaf_hi) == 8 && offsetof(ExtentLeaf, ee_start_lo) == 8);

struct RawDirectoryEntry {
  Le32 inode;    // 0: unused
  Le16 rec_len;  // multiple of 4; in a 64 KiB block 0 and 65535 mean 65536
  uint8_t name_len;
  uint8_t file_type;
  // char name[name_len] follows
};
static_assert(sizeof(RawDirectoryEntry) == 8);
static_assert(offsetof(RawDirectoryEntry, name_len) == 6 && offsetof(RawDirectoryEntry, file_type) == 7);
// Fake entry at the end of a leaf block on metadata_csum volumes.
struct DirectoryTail {
  Le32 det_reserved_zero1;
  Le16 det_rec_len;  // 12
  uint8_t det_reserved_zero2;
  uint8_t det_reserved_ft;  // 0xDE
  Le32 det_checksum;
};
static_assert(sizeof(DirectoryTail) == 12);
static_assert(offsetof(DirectoryTail, det_reserved_ft) == 7 && offsetof(DirectoryTail, det_checksum) == 8);
inline constexpr uint8_t kDirectoryTailType = 0xDE;

// htree: root block = fake "." and ".." entries, DxRootInfo, then count/limit and entries; an inner node = fake entry
// of the whole block, then count/limit and entries. The first DxEntry's hash field holds {limit, count}.
struct DxRootInfo {
  Le32 reserved_zero;
  uint8_t hash_version;
  uint8_t info_length;  // 8
  uint8_t indirect_levels;
  uint8_t unused_flags;
};
struct DxCountLimit {
  Le16 limit;
  Le16 count;
};
struct DxEntry {
  Le32 hash;
  Le32 block;
};
struct DxTail {
  Le32 dt_reserved;
  Le32 dt_checksum;
};
static_assert(sizeof(DxRootInfo) == 8 && sizeof(DxEntry) == 8 && sizeof(DxCountLimit) == 4 && sizeof(DxTail) == 8);
static_assert(offsetof(DxRootInfo, hash_version) == 4 && offsetof(DxRootInfo, indirect_levels) == 6);

enum DirectoryFileType : uint8_t {
  kTypeUnknown = 0,
  kTypeRegular = 1,
  kTypeDirectory = 2,
  kTypeCharDevice = 3,
  kTypeBlockDevice = 4,
  kTypeFifo = 5,
  kTypeSocket = 6,
  kTypeSymlink = 7,
};

}  // namespace elidefs::core
