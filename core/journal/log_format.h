// LogFormat: how the blocks of one log are encoded under its feature flags, and their checksums. Source:
// Documentation/filesystems/ext4, "Journal (jbd2)". Pure functions on memory; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/geometry.h"
#include "core/ondisk/journal_layout.h"

namespace elidefs::core {

enum class LogChecksum : uint8_t { kNone, kV1, kV2, kV3 };

struct LogFormat {
  uint32_t block_bytes = 0;
  bool is_64bit = false;
  LogChecksum checksum = LogChecksum::kNone;
  uint8_t uuid[16] = {};
  uint32_t checksum_seed = 0;  // crc32c(~0, uuid)

  bool has_block_checksums() const { return checksum == LogChecksum::kV2 || checksum == LogChecksum::kV3; }
  uint32_t TailBytes() const { return has_block_checksums() ? sizeof(JournalBlockTail) : 0; }
  // A v2 tag is two bytes longer than its struct: the writers that exist do it so.
  uint32_t TagBytes() const;
  uint32_t RevokeRecordBytes() const { return is_64bit ? 8 : 4; }
  uint32_t TagsPerDescriptor() const;
  uint32_t RevokesPerBlock() const;
};

struct LogTag {
  BlockNumber block = 0;
  bool escaped = false;
  uint32_t checksum = 0;  // 16 bits of it for v2; 0 without block checksums
};

// Reading. All take one whole block and trust none of it.
bool HasJournalHeader(absl::Span<const uint8_t> block, uint32_t* type, uint32_t* sequence);
bool IsTailChecksumRight(const LogFormat& format, absl::Span<const uint8_t> block);
bool IsCommitChecksumRight(const LogFormat& format, absl::Span<const uint8_t> block);
bool IsTagChecksumRight(const LogFormat& format, const LogTag& tag, uint32_t sequence,
                        absl::Span<const uint8_t> logged);
// v1: `crc` covers the transaction's descriptors and data blocks. A commit block that carries no checksum is right.
bool IsV1ChecksumRight(absl::Span<const uint8_t> block, uint32_t crc);
uint32_t Crc32BigEndian(uint32_t seed, absl::Span<const uint8_t> bytes);
std::vector<LogTag> ParseDescriptor(const LogFormat& format, absl::Span<const uint8_t> block);
// False when the count field is impossible.
bool ParseRevoke(const LogFormat& format, absl::Span<const uint8_t> block, std::vector<BlockNumber>* revoked);
uint64_t CommitTimeNs(absl::Span<const uint8_t> block);

// Writing (v3 only). `block` is zeroed memory of block_bytes.
uint32_t TagChecksum(const LogFormat& format, uint32_t sequence, absl::Span<const uint8_t> logged);
// At most TagsPerDescriptor tags.
void EncodeDescriptor(const LogFormat& format, uint32_t sequence, absl::Span<const LogTag> tags, uint8_t* block);
// At most RevokesPerBlock numbers.
void EncodeRevoke(const LogFormat& format, uint32_t sequence, absl::Span<const BlockNumber> revoked, uint8_t* block);
void EncodeCommit(const LogFormat& format, uint32_t sequence, uint64_t commit_time_ns, uint8_t* block);

}  // namespace elidefs::core
