#include "core/journal/log_format.h"

#include <array>
#include <cstring>

#include "base/crc32c.h"

namespace elidefs::core {
namespace {

constexpr size_t kUuidBytes = 16;
constexpr uint64_t kNsPerSecond = 1000000000;
constexpr uint8_t kV1ChecksumCrc32 = 1;
constexpr uint8_t kV1ChecksumBytes = 4;

template <typename T>
T Load(absl::Span<const uint8_t> block, size_t offset_bytes) {
  T value;
  std::memcpy(&value, block.data() + offset_bytes, sizeof(T));
  return value;
}

// crc32c of the block with the four bytes at `hole_offset` taken as zero.
uint32_t ChecksumWithHole(uint32_t seed, absl::Span<const uint8_t> block, size_t hole_offset) {
  const uint8_t zero[4] = {};
  uint32_t crc = Crc32c(seed, block.data(), hole_offset);
  crc = Crc32c(crc, zero, sizeof(zero));
  const size_t rest = hole_offset + sizeof(zero);
  return Crc32c(crc, block.data() + rest, block.size() - rest);
}

void PutHeader(JournalBlockType type, uint32_t sequence, uint8_t* block) {
  JournalHeader header;
  header.h_magic = kJournalMagic;
  header.h_blocktype = static_cast<uint32_t>(type);
  header.h_sequence = sequence;
  std::memcpy(block, &header, sizeof(header));
}

void PutTailChecksum(const LogFormat& format, uint8_t* block) {
  const size_t offset = format.block_bytes - sizeof(JournalBlockTail);
  const Be32 crc = ChecksumWithHole(format.checksum_seed, {block, format.block_bytes}, offset);
  std::memcpy(block + offset, &crc, sizeof(crc));
}

std::array<uint32_t, 256> MakeBigEndianTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte << 24U;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1U) ^ ((crc & 0x80000000U) != 0 ? 0x04C11DB7U : 0U);
    table[byte] = crc;
  }
  return table;
}

}  // namespace

uint32_t LogFormat::TagBytes() const {
  if (checksum == LogChecksum::kV3) return sizeof(JournalTag3);
  uint32_t bytes = sizeof(JournalTag);
  if (checksum == LogChecksum::kV2) bytes += sizeof(Be16);
  return is_64bit ? bytes : bytes - sizeof(Be32);
}

uint32_t LogFormat::TagsPerDescriptor() const {
  return (block_bytes - static_cast<uint32_t>(sizeof(JournalHeader) + kUuidBytes) - TailBytes()) / TagBytes();
}

uint32_t LogFormat::RevokesPerBlock() const {
  return (block_bytes - static_cast<uint32_t>(sizeof(JournalRevokeHeader)) - TailBytes()) / RevokeRecordBytes();
}

bool HasJournalHeader(absl::Span<const uint8_t> block, uint32_t* type, uint32_t* sequence) {
  const auto header = Load<JournalHeader>(block, 0);
  if (header.h_magic != kJournalMagic) return false;
  *type = header.h_blocktype;
  *sequence = header.h_sequence;
  return true;
}

bool IsTailChecksumRight(const LogFormat& format, absl::Span<const uint8_t> block) {
  if (!format.has_block_checksums()) return true;
  const size_t offset = block.size() - sizeof(JournalBlockTail);
  return Load<JournalBlockTail>(block, offset).t_checksum == ChecksumWithHole(format.checksum_seed, block, offset);
}

bool IsCommitChecksumRight(const LogFormat& format, absl::Span<const uint8_t> block) {
  if (!format.has_block_checksums()) return true;
  return Load<JournalCommitBlock>(block, 0).h_chksum[0] ==
         ChecksumWithHole(format.checksum_seed, block, offsetof(JournalCommitBlock, h_chksum));
}

uint32_t TagChecksum(const LogFormat& format, uint32_t sequence, absl::Span<const uint8_t> logged) {
  const Be32 sequence_bytes = sequence;
  const uint32_t crc = Crc32c(format.checksum_seed, &sequence_bytes, sizeof(sequence_bytes));
  return Crc32c(crc, logged.data(), logged.size());
}

bool IsTagChecksumRight(const LogFormat& format, const LogTag& tag, uint32_t sequence,
                        absl::Span<const uint8_t> logged) {
  if (!format.has_block_checksums()) return true;
  const uint32_t crc = TagChecksum(format, sequence, logged);
  return tag.checksum == (format.checksum == LogChecksum::kV3 ? crc : (crc & 0xFFFFU));
}

uint32_t Crc32BigEndian(uint32_t seed, absl::Span<const uint8_t> bytes) {
  static const std::array<uint32_t, 256> table = MakeBigEndianTable();
  uint32_t crc = seed;
  for (const uint8_t byte : bytes) crc = (crc << 8U) ^ table[(crc >> 24U) ^ byte];
  return crc;
}

bool IsV1ChecksumRight(absl::Span<const uint8_t> block, uint32_t crc) {
  const auto commit = Load<JournalCommitBlock>(block, 0);
  if (commit.h_chksum_type == 0 && commit.h_chksum_size == 0 && commit.h_chksum[0] == 0) return true;
  return commit.h_chksum_type == kV1ChecksumCrc32 && commit.h_chksum_size == kV1ChecksumBytes &&
         commit.h_chksum[0] == crc;
}

std::vector<LogTag> ParseDescriptor(const LogFormat& format, absl::Span<const uint8_t> block) {
  std::vector<LogTag> tags;
  const size_t end = block.size() - format.TailBytes();
  size_t offset = sizeof(JournalHeader);
  while (offset + format.TagBytes() <= end) {
    LogTag tag;
    uint32_t flags = 0;
    uint32_t high = 0;
    if (format.checksum == LogChecksum::kV3) {
      const auto raw = Load<JournalTag3>(block, offset);
      tag.block = raw.t_blocknr;
      tag.checksum = raw.t_checksum;
      flags = raw.t_flags;
      high = raw.t_blocknr_high;
    } else {
      tag.block = Load<Be32>(block, offset + offsetof(JournalTag, t_blocknr));
      tag.checksum = Load<Be16>(block, offset + offsetof(JournalTag, t_checksum));
      flags = Load<Be16>(block, offset + offsetof(JournalTag, t_flags));
      if (format.is_64bit) high = Load<Be32>(block, offset + offsetof(JournalTag, t_blocknr_high));
    }
    if (format.is_64bit) tag.block |= BlockNumber{high} << 32U;
    tag.escaped = (flags & kTagEscape) != 0;
    tags.push_back(tag);
    offset += format.TagBytes();
    if ((flags & kTagSameUuid) == 0) offset += kUuidBytes;
    if ((flags & kTagLast) != 0) break;
  }
  return tags;
}

bool ParseRevoke(const LogFormat& format, absl::Span<const uint8_t> block, std::vector<BlockNumber>* revoked) {
  const uint32_t used = Load<JournalRevokeHeader>(block, 0).r_count;
  if (used < sizeof(JournalRevokeHeader) || used > block.size() - format.TailBytes()) return false;
  const uint32_t record_bytes = format.RevokeRecordBytes();
  for (size_t offset = sizeof(JournalRevokeHeader); offset + record_bytes <= used; offset += record_bytes) {
    revoked->push_back(format.is_64bit ? Load<Be64>(block, offset).Get() : Load<Be32>(block, offset).Get());
  }
  return true;
}

uint64_t CommitTimeNs(absl::Span<const uint8_t> block) {
  const auto commit = Load<JournalCommitBlock>(block, 0);
  return commit.h_commit_sec * kNsPerSecond + commit.h_commit_nsec;
}

void EncodeDescriptor(const LogFormat& format, uint32_t sequence, absl::Span<const LogTag> tags, uint8_t* block) {
  PutHeader(kJournalDescriptor, sequence, block);
  size_t offset = sizeof(JournalHeader);
  for (size_t i = 0; i < tags.size(); ++i) {
    const bool first = i == 0;
    JournalTag3 raw;
    raw.t_blocknr = static_cast<uint32_t>(tags[i].block);
    raw.t_blocknr_high = static_cast<uint32_t>(tags[i].block >> 32U);
    raw.t_flags =
        (tags[i].escaped ? kTagEscape : 0U) | (first ? 0U : kTagSameUuid) | (i + 1 == tags.size() ? kTagLast : 0U);
    raw.t_checksum = tags[i].checksum;
    std::memcpy(block + offset, &raw, sizeof(raw));
    offset += sizeof(raw);
    if (first) {
      std::memcpy(block + offset, format.uuid, kUuidBytes);
      offset += kUuidBytes;
    }
  }
  PutTailChecksum(format, block);
}

void EncodeRevoke(const LogFormat& format, uint32_t sequence, absl::Span<const BlockNumber> revoked, uint8_t* block) {
  PutHeader(kJournalRevoke, sequence, block);
  size_t offset = sizeof(JournalRevokeHeader);
  for (const BlockNumber number : revoked) {
    if (format.is_64bit) {
      const Be64 record = number;
      std::memcpy(block + offset, &record, sizeof(record));
    } else {
      const Be32 record = static_cast<uint32_t>(number);
      std::memcpy(block + offset, &record, sizeof(record));
    }
    offset += format.RevokeRecordBytes();
  }
  const Be32 used = static_cast<uint32_t>(offset);
  std::memcpy(block + offsetof(JournalRevokeHeader, r_count), &used, sizeof(used));
  PutTailChecksum(format, block);
}

void EncodeCommit(const LogFormat& format, uint32_t sequence, uint64_t commit_time_ns, uint8_t* block) {
  PutHeader(kJournalCommit, sequence, block);
  const Be64 seconds = commit_time_ns / kNsPerSecond;
  const Be32 nanoseconds = static_cast<uint32_t>(commit_time_ns % kNsPerSecond);
  std::memcpy(block + offsetof(JournalCommitBlock, h_commit_sec), &seconds, sizeof(seconds));
  std::memcpy(block + offsetof(JournalCommitBlock, h_commit_nsec), &nanoseconds, sizeof(nanoseconds));
  const size_t hole = offsetof(JournalCommitBlock, h_chksum);
  const Be32 crc = ChecksumWithHole(format.checksum_seed, {block, format.block_bytes}, hole);
  std::memcpy(block + hole, &crc, sizeof(crc));
}

}  // namespace elidefs::core
