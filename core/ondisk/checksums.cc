#include "core/ondisk/checksums.h"

#include <cassert>
#include <cstddef>

#include "base/crc32c.h"
#include "base/endian.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kFreshChecksum = ~0U;
constexpr size_t kDescriptorChecksumOffset = offsetof(GroupDescriptor, bg_checksum);
// Where the second half of the inode's checksum ends, counted from byte 128 as i_extra_isize counts.
constexpr uint32_t kExtraBytesForHighHalf =
    offsetof(RawInode, i_checksum_hi) + sizeof(RawInode::i_checksum_hi) - kGoodOldInodeBytes;
constexpr size_t kXattrHeaderChecksumOffset = 16;

// The register before `byte` was fed in, from the register after it.
uint32_t Crc32cBackwards(uint32_t after, uint8_t byte) {
  constexpr uint32_t kPolynomial = 0x82F63B78U;  // reflected
  for (int bit = 0; bit < 8; ++bit) {
    const bool subtracted = (after & 0x80000000U) != 0;
    after = ((subtracted ? after ^ kPolynomial : after) << 1U) | (subtracted ? 1U : 0U);
  }
  return after ^ byte;
}

uint32_t Crc32cOfWord(uint32_t seed, uint32_t value) {
  const Le32 word(value);
  return Crc32c(seed, &word, sizeof(word));
}

uint16_t GroupDescriptorCrc16(const Geometry& geometry, GroupNumber group, const uint8_t* descriptor) {
  const Le32 number(group);
  constexpr size_t kAfter = kDescriptorChecksumOffset + sizeof(Le16);
  uint16_t crc = Crc16(geometry.group_crc16_seed, &number, sizeof(number));
  crc = Crc16(crc, descriptor, kDescriptorChecksumOffset);
  // The field itself is left out, not zeroed, in this older checksum.
  if (geometry.descriptor_bytes > kAfter) crc = Crc16(crc, descriptor + kAfter, geometry.descriptor_bytes - kAfter);
  return crc;
}

uint16_t GroupDescriptorCrc32c(const Geometry& geometry, GroupNumber group, const uint8_t* descriptor) {
  const Le16 zero(uint16_t{0});
  constexpr size_t kAfter = kDescriptorChecksumOffset + sizeof(Le16);
  uint32_t crc = Crc32cOfWord(geometry.checksum_seed, group);
  crc = Crc32c(crc, descriptor, kDescriptorChecksumOffset);
  crc = Crc32c(crc, &zero, sizeof(zero));
  crc = Crc32c(crc, descriptor + kAfter, geometry.descriptor_bytes - kAfter);
  return static_cast<uint16_t>(crc & 0xFFFFU);
}

// False when the volume has no descriptor checksums.
bool GroupDescriptorChecksum(const Geometry& geometry, GroupNumber group, const uint8_t* descriptor,
                             uint16_t* checksum) {
  if (geometry.metadata_csum()) {
    *checksum = GroupDescriptorCrc32c(geometry, group, descriptor);
  } else if ((geometry.feature_ro_compat & kRoCompatGdtCsum) != 0) {
    *checksum = GroupDescriptorCrc16(geometry, group, descriptor);
  } else {
    return false;
  }
  return true;
}

bool InodeHasHighHalf(const Geometry& geometry, const uint8_t* raw) {
  if (geometry.inode_bytes <= kGoodOldInodeBytes) return false;
  return reinterpret_cast<const RawInode*>(raw)->i_extra_isize >= kExtraBytesForHighHalf;
}

uint32_t InodeChecksum(const Geometry& geometry, InodeNumber inode, const uint8_t* raw) {
  const Le16 zero(uint16_t{0});
  constexpr size_t kLow = offsetof(RawInode, i_checksum_lo);
  constexpr size_t kHigh = offsetof(RawInode, i_checksum_hi);
  uint32_t crc = InodeChecksumSeed(geometry, inode, reinterpret_cast<const RawInode*>(raw)->i_generation);
  crc = Crc32c(crc, raw, kLow);
  crc = Crc32c(crc, &zero, sizeof(zero));
  if (!InodeHasHighHalf(geometry, raw)) return Crc32c(crc, raw + kLow + 2, geometry.inode_bytes - kLow - 2);
  crc = Crc32c(crc, raw + kLow + 2, kHigh - kLow - 2);
  crc = Crc32c(crc, &zero, sizeof(zero));
  return Crc32c(crc, raw + kHigh + 2, geometry.inode_bytes - kHigh - 2);
}

// The tail's place follows from a field of the block: false when it does not fit.
bool ExtentTailOffset(const Geometry& geometry, const uint8_t* block, size_t* offset) {
  const auto* header = reinterpret_cast<const ExtentHeader*>(block);
  *offset = sizeof(ExtentHeader) + size_t{header->eh_max} * sizeof(ExtentLeaf);
  return *offset + sizeof(ExtentTail) <= geometry.block_bytes;
}

bool DxChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block, uint32_t count_offset_bytes,
                size_t* tail_offset, uint32_t* checksum) {
  if (count_offset_bytes + sizeof(DxCountLimit) > geometry.block_bytes) return false;
  const auto* counts = reinterpret_cast<const DxCountLimit*>(block + count_offset_bytes);
  *tail_offset = count_offset_bytes + size_t{counts->limit} * sizeof(DxEntry);
  if (counts->count > counts->limit || *tail_offset + sizeof(DxTail) > geometry.block_bytes) return false;
  const auto* tail = reinterpret_cast<const DxTail*>(block + *tail_offset);
  const uint32_t crc = Crc32c(inode_seed, block, count_offset_bytes + size_t{counts->count} * sizeof(DxEntry));
  *checksum = Crc32cOfWord(Crc32c(crc, &tail->dt_reserved, sizeof(tail->dt_reserved)), 0);
  return true;
}

}  // namespace

uint32_t SuperBlockChecksum(const SuperBlock& super_block) {
  return Crc32c(kFreshChecksum, &super_block, offsetof(SuperBlock, s_checksum));
}

void SetSuperBlockChecksum(SuperBlock* super_block) {
  if ((super_block->s_feature_ro_compat & kRoCompatMetadataCsum) == 0) return;
  super_block->s_checksum = SuperBlockChecksum(*super_block);
}

// crc32c is linear: the register after four bytes x is that of four zero bytes fed into (register ^ x). So the four
// bytes that lead from one register value to another are the first value, xored with the second one run backwards over
// four zero bytes.
void SealSuperBlock(SuperBlock* super_block) {
  if ((super_block->s_feature_ro_compat & kRoCompatMetadataCsum) == 0) return;
  const auto* bytes = reinterpret_cast<const uint8_t*>(super_block);
  constexpr size_t kPatch = offsetof(SuperBlock, s_snapshot_id);
  constexpr size_t kEnd = offsetof(SuperBlock, s_checksum);
  static_assert(kPatch + sizeof(Le32) <= 512);
  const uint32_t before = Crc32c(kFreshChecksum, bytes, kPatch);
  uint32_t after = super_block->s_checksum;
  for (size_t i = kEnd; i > kPatch + sizeof(Le32); --i) after = Crc32cBackwards(after, bytes[i - 1]);
  for (size_t i = 0; i < sizeof(Le32); ++i) after = Crc32cBackwards(after, 0);
  super_block->s_snapshot_id = before ^ after;
  assert(SuperBlockChecksum(*super_block) == super_block->s_checksum);
}

void SetGroupDescriptorChecksum(const Geometry& geometry, GroupNumber group, uint8_t* descriptor) {
  uint16_t checksum = 0;
  if (!GroupDescriptorChecksum(geometry, group, descriptor, &checksum)) return;
  reinterpret_cast<GroupDescriptor*>(descriptor)->bg_checksum = checksum;
}

bool VerifyGroupDescriptor(const Geometry& geometry, GroupNumber group, const uint8_t* descriptor) {
  uint16_t checksum = 0;
  if (!GroupDescriptorChecksum(geometry, group, descriptor, &checksum)) return true;
  return reinterpret_cast<const GroupDescriptor*>(descriptor)->bg_checksum == checksum;
}

uint32_t BlockBitmapChecksum(const Geometry& geometry, const uint8_t* bitmap) {
  return Crc32c(geometry.checksum_seed, bitmap, geometry.blocks_per_group / geometry.blocks_per_cluster / 8);
}

uint32_t InodeBitmapChecksum(const Geometry& geometry, const uint8_t* bitmap) {
  return Crc32c(geometry.checksum_seed, bitmap, geometry.inodes_per_group / 8);
}

void SetInodeChecksum(const Geometry& geometry, InodeNumber inode, uint8_t* raw) {
  if (!geometry.metadata_csum()) return;
  const uint32_t checksum = InodeChecksum(geometry, inode, raw);
  auto* fields = reinterpret_cast<RawInode*>(raw);
  fields->i_checksum_lo = static_cast<uint16_t>(checksum & 0xFFFFU);
  if (InodeHasHighHalf(geometry, raw)) fields->i_checksum_hi = static_cast<uint16_t>(checksum >> 16U);
}

bool VerifyInode(const Geometry& geometry, InodeNumber inode, const uint8_t* raw) {
  if (!geometry.metadata_csum()) return true;
  const uint32_t checksum = InodeChecksum(geometry, inode, raw);
  const auto* fields = reinterpret_cast<const RawInode*>(raw);
  if (fields->i_checksum_lo != (checksum & 0xFFFFU)) return false;
  return !InodeHasHighHalf(geometry, raw) || fields->i_checksum_hi == checksum >> 16U;
}

uint32_t InodeChecksumSeed(const Geometry& geometry, InodeNumber inode, uint32_t generation) {
  return Crc32cOfWord(Crc32cOfWord(geometry.checksum_seed, inode), generation);
}

void SetExtentBlockChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block) {
  size_t offset = 0;
  if (!geometry.metadata_csum() || !ExtentTailOffset(geometry, block, &offset)) return;
  reinterpret_cast<ExtentTail*>(block + offset)->et_checksum = Crc32c(inode_seed, block, offset);
}

bool VerifyExtentBlockChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block) {
  if (!geometry.metadata_csum()) return true;
  size_t offset = 0;
  if (!ExtentTailOffset(geometry, block, &offset)) return false;
  return reinterpret_cast<const ExtentTail*>(block + offset)->et_checksum == Crc32c(inode_seed, block, offset);
}

void SetDirectoryLeafChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block) {
  if (!geometry.metadata_csum()) return;
  const size_t offset = geometry.block_bytes - sizeof(DirectoryTail);
  reinterpret_cast<DirectoryTail*>(block + offset)->det_checksum = Crc32c(inode_seed, block, offset);
}

bool VerifyDirectoryLeafChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block) {
  if (!geometry.metadata_csum()) return true;
  const size_t offset = geometry.block_bytes - sizeof(DirectoryTail);
  const auto* tail = reinterpret_cast<const DirectoryTail*>(block + offset);
  if (tail->det_reserved_zero1 != 0 || tail->det_rec_len != sizeof(DirectoryTail) || tail->det_reserved_zero2 != 0 ||
      tail->det_reserved_ft != kDirectoryTailType) {
    return false;
  }
  return tail->det_checksum == Crc32c(inode_seed, block, offset);
}

void SetDxChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block, uint32_t count_offset_bytes) {
  size_t tail_offset = 0;
  uint32_t checksum = 0;
  if (!geometry.metadata_csum()) return;
  if (!DxChecksum(geometry, inode_seed, block, count_offset_bytes, &tail_offset, &checksum)) return;
  reinterpret_cast<DxTail*>(block + tail_offset)->dt_checksum = checksum;
}

bool VerifyDxChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block,
                      uint32_t count_offset_bytes) {
  if (!geometry.metadata_csum()) return true;
  size_t tail_offset = 0;
  uint32_t checksum = 0;
  if (!DxChecksum(geometry, inode_seed, block, count_offset_bytes, &tail_offset, &checksum)) return false;
  return reinterpret_cast<const DxTail*>(block + tail_offset)->dt_checksum == checksum;
}

uint32_t XattrBlockChecksum(const Geometry& geometry, BlockNumber block_number, const uint8_t* block) {
  const Le64 number(block_number);
  constexpr size_t kAfter = kXattrHeaderChecksumOffset + sizeof(Le32);
  uint32_t crc = Crc32c(geometry.checksum_seed, &number, sizeof(number));
  crc = Crc32c(crc, block, kXattrHeaderChecksumOffset);
  crc = Crc32cOfWord(crc, 0);
  return Crc32c(crc, block + kAfter, geometry.block_bytes - kAfter);
}

}  // namespace elidefs::core
