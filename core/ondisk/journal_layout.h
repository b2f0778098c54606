// The jbd2 journal, big-endian. Source: Documentation/filesystems/ext4, "Journal (jbd2)".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/endian.h"

namespace elidefs::core {

inline constexpr uint32_t kJournalMagic = 0xC03B3998U;
enum JournalBlockType : uint32_t {
  kJournalDescriptor = 1,
  kJournalCommit = 2,
  kJournalSuperV1 = 3,
  kJournalSuperV2 = 4,
  kJournalRevoke = 5,
};
struct JournalHeader {
  Be32 h_magic;
  Be32 h_blocktype;
  Be32 h_sequence;
};
static_assert(sizeof(JournalHeader) == 12 && offsetof(JournalHeader, h_sequence) == 8);
struct JournalSuperBlock {
  JournalHeader s_header;
  Be32 s_blocksize;
  Be32 s_maxlen;
  Be32 s_first;
  Be32 s_sequence;  // first commit id expected in the log
  Be32 s_start;     // block number of the start of the log; 0: empty
  Be32 s_errno;
  Be32 s_feature_compat;
  Be32 s_feature_incompat;
  Be32 s_feature_ro_compat;
  uint8_t s_uuid[16];
  Be32 s_nr_users;
  Be32 s_dynsuper;
  Be32 s_max_transaction;
  Be32 s_max_trans_data;
  uint8_t s_checksum_type;
  uint8_t s_padding2[3];
  Be32 s_num_fc_blks;
  Be32 s_head;
  Be32 s_padding[40];
  Be32 s_checksum;  // crc32c from ~0 of the 1024 bytes with this field zero
  uint8_t s_users[16 * 48];
};
static_assert(sizeof(JournalSuperBlock) == 1024);
static_assert(offsetof(JournalSuperBlock, s_uuid) == 0x30 && offsetof(JournalSuperBlock, s_checksum_type) == 0x50);
static_assert(offsetof(JournalSuperBlock, s_checksum) == 0xFC && offsetof(JournalSuperBlock, s_users) == 0x100);

enum JournalFeatureIncompat : uint32_t {
  kJournalRevokeFeature = 0x1,
  kJournal64Bit = 0x2,
  kJournalAsyncCommit = 0x4,
  kJournalCsumV2 = 0x8,
  kJournalCsumV3 = 0x10,
  kJournalFastCommit = 0x20,
};
inline constexpr uint32_t kJournalCompatChecksum = 0x1;  // v1: crc32 in the commit block
inline constexpr uint8_t kJournalChecksumCrc32c = 4;

struct JournalTag3 {  // with CSUM_V3
  Be32 t_blocknr;
  Be32 t_flags;
  Be32 t_blocknr_high;
  Be32 t_checksum;
};
struct JournalTag {  // without; 8 bytes, t_blocknr_high only with 64BIT
  Be32 t_blocknr;
  Be16 t_checksum;
  Be16 t_flags;
  Be32 t_blocknr_high;
};
static_assert(sizeof(JournalTag3) == 16 && sizeof(JournalTag) == 12);
static_assert(offsetof(JournalTag3, t_checksum) == 12 && offsetof(JournalTag, t_blocknr_high) == 8);
enum JournalTagFlag : uint32_t {
  kTagEscape = 1,
  kTagSameUuid = 2,
  kTagDeleted = 4,
  kTagLast = 8,
};
struct JournalRevokeHeader {
  JournalHeader r_header;
  Be32 r_count;  // bytes used in the block, header included
};
struct JournalCommitBlock {
  JournalHeader h_header;
  uint8_t h_chksum_type;
  uint8_t h_chksum_size;
  uint8_t h_padding[2];
  Be32 h_chksum[8];  // [0]: crc32c of the block with this field zero, seeded from the journal uuid (v2, v3)
  Be64 h_commit_sec;
  Be32 h_commit_nsec;
};
static_assert(sizeof(JournalRevokeHeader) == 16 && sizeof(JournalCommitBlock) == 60);
static_assert(offsetof(JournalCommitBlock, h_chksum) == 16 && offsetof(JournalCommitBlock, h_commit_sec) == 48);
struct JournalBlockTail {
  Be32 t_checksum;  // last 4 bytes of descriptor and revoke blocks
};
static_assert(sizeof(JournalBlockTail) == 4);

}  // namespace elidefs::core
