// Metadata checksums of DESIGN's "ext4: facts". Pure functions over bytes; `geometry.metadata_csum()` false: the Set
// functions do nothing and the Verify functions accept.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/geometry.h"
#include "core/ondisk/inode_layout.h"
#include "core/ondisk/super_block.h"

namespace elidefs::core {

uint32_t SuperBlockChecksum(const SuperBlock& super_block);
void SetSuperBlockChecksum(SuperBlock* super_block);  // only with metadata_csum in super_block
// After changes in the first 512 bytes of a superblock whose stored checksum was right: makes it right again without
// touching the checksum, by a value in s_snapshot_id (a field of an abandoned feature that no tool reads while
// s_snapshot_inum is 0). So an update changes one sector only and a power cut cannot tear it; a superblock with a wrong
// checksum could be mounted by nobody, not even to replay its journal. Without metadata_csum nothing is done.
void SealSuperBlock(SuperBlock* super_block);

// `descriptor` points at geometry.descriptor_bytes bytes. Also does the crc16 of uninit_bg volumes.
void SetGroupDescriptorChecksum(const Geometry& geometry, GroupNumber group, uint8_t* descriptor);
bool VerifyGroupDescriptor(const Geometry& geometry, GroupNumber group, const uint8_t* descriptor);

uint32_t BlockBitmapChecksum(const Geometry& geometry, const uint8_t* bitmap);
uint32_t InodeBitmapChecksum(const Geometry& geometry, const uint8_t* bitmap);

// `raw` points at geometry.inode_bytes bytes.
void SetInodeChecksum(const Geometry& geometry, InodeNumber inode, uint8_t* raw);
bool VerifyInode(const Geometry& geometry, InodeNumber inode, const uint8_t* raw);

// crc32c seeded with the volume's seed, inode number and generation: the start of extent and directory checksums.
uint32_t InodeChecksumSeed(const Geometry& geometry, InodeNumber inode, uint32_t generation);

// A whole extent block (not the root in the inode).
void SetExtentBlockChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block);
bool VerifyExtentBlockChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block);

// A directory leaf (linear block or htree leaf) with its 12-byte tail.
void SetDirectoryLeafChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block);
bool VerifyDirectoryLeafChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block);
// An htree root or inner node; `count_offset_bytes` is where its DxCountLimit sits (0x20 in a root, 8 in a node).
void SetDxChecksum(const Geometry& geometry, uint32_t inode_seed, uint8_t* block, uint32_t count_offset_bytes);
bool VerifyDxChecksum(const Geometry& geometry, uint32_t inode_seed, const uint8_t* block, uint32_t count_offset_bytes);

uint32_t XattrBlockChecksum(const Geometry& geometry, BlockNumber block_number, const uint8_t* block);

}  // namespace elidefs::core
