#include "core/journal/journal_superblock.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kMinLogBlocks = 1024;
constexpr uint32_t kDefaultFastCommitBlocks = 256;
constexpr uint32_t kKnownIncompat =
    kJournalRevokeFeature | kJournal64Bit | kJournalAsyncCommit | kJournalCsumV2 | kJournalCsumV3 | kJournalFastCommit;

uint32_t SuperblockChecksum(JournalSuperBlock copy) {
  copy.s_checksum = 0;
  return Crc32c(~0U, &copy, sizeof(copy));
}

}  // namespace

JournalSuperblock::JournalSuperblock(blockio::RequestQueue* queue, BlockNumber block, AlignedBytes bytes,
                                     uint32_t block_bytes)
    : queue_(queue), block_(block), block_bytes_(block_bytes), bytes_(std::move(bytes)) {}

absl::StatusOr<std::unique_ptr<JournalSuperblock>> JournalSuperblock::Load(blockio::RequestQueue* queue,
                                                                           const LogMap& log_map,
                                                                           const Geometry& geometry) {
  const uint32_t block_bytes = geometry.block_bytes;
  const BlockNumber block = log_map.Physical(0);
  AlignedBytes bytes = AllocateAligned(block_bytes, std::max(4096U, queue->capabilities().memory_alignment_bytes));
  if (const int error = queue->Read(block * block_bytes, bytes.get(), block_bytes); error != 0) {
    return ErrnoError(error, "cannot read the journal superblock");
  }
  std::unique_ptr<JournalSuperblock> superblock(new JournalSuperblock(queue, block, std::move(bytes), block_bytes));
  ELIDEFS_RETURN_IF_ERROR(superblock->Check(log_map));
  return superblock;
}

absl::Status JournalSuperblock::CheckFeatures() {
  JournalSuperBlock raw;
  {
    MutexLock lock(mutex_);
    std::memcpy(&raw, bytes_.get(), sizeof(raw));
  }
  const uint32_t incompat = raw.s_feature_incompat;
  const uint32_t compat = raw.s_feature_compat;
  if ((incompat & ~kKnownIncompat) != 0 || raw.s_feature_ro_compat != 0U) {
    return ErrnoError(
        EOPNOTSUPP, absl::StrCat("the journal has unknown features (incompat 0x", absl::Hex(incompat), ", ro_compat 0x",
                                 absl::Hex(raw.s_feature_ro_compat.Get()), "); run e2fsck to replay it"));
  }
  const bool v1 = (compat & kJournalCompatChecksum) != 0;
  const bool v2 = (incompat & kJournalCsumV2) != 0;
  const bool v3 = (incompat & kJournalCsumV3) != 0;
  if (int{v1} + int{v2} + int{v3} > 1) return CorruptionError("the journal has several checksum versions at once");
  if (v2 || v3) {
    if (raw.s_checksum_type != kJournalChecksumCrc32c) return CorruptionError("unknown journal checksum type");
    if (raw.s_checksum != SuperblockChecksum(raw)) return CorruptionError("journal superblock checksum is wrong");
  }
  format_.checksum = v1 ? LogChecksum::kV1 : v2 ? LogChecksum::kV2 : v3 ? LogChecksum::kV3 : LogChecksum::kNone;
  format_.is_64bit = (incompat & kJournal64Bit) != 0;
  has_fast_commit_ = (incompat & kJournalFastCommit) != 0;
  std::memcpy(format_.uuid, raw.s_uuid, sizeof(format_.uuid));
  format_.checksum_seed = Crc32c(~0U, raw.s_uuid, sizeof(raw.s_uuid));
  end_ = max_length_;
  if (has_fast_commit_) {
    const uint32_t wanted = raw.s_num_fc_blks != 0U ? raw.s_num_fc_blks.Get() : kDefaultFastCommitBlocks;
    // A log too short for its area has none.
    if (wanted < max_length_ && max_length_ - wanted >= kMinLogBlocks) end_ = max_length_ - wanted;
  }
  return absl::OkStatus();
}

absl::Status JournalSuperblock::Check(const LogMap& log_map) {
  JournalSuperBlock raw;
  {
    MutexLock lock(mutex_);
    std::memcpy(&raw, bytes_.get(), sizeof(raw));
  }
  const uint32_t type = raw.s_header.h_blocktype;
  if (raw.s_header.h_magic != kJournalMagic || (type != kJournalSuperV1 && type != kJournalSuperV2)) {
    return CorruptionError("the journal inode does not start with a journal superblock");
  }
  if (raw.s_blocksize != block_bytes_) return CorruptionError("journal block size differs from the volume's");
  format_.block_bytes = block_bytes_;
  max_length_ = raw.s_maxlen;
  first_ = raw.s_first;
  sequence_ = raw.s_sequence;
  start_ = raw.s_start;
  error_number_ = static_cast<int>(raw.s_errno.Get());
  if (max_length_ > log_map.size() || max_length_ < kMinLogBlocks) {
    return CorruptionError(absl::StrCat("journal length ", max_length_, " does not fit its inode or is below 1024"));
  }
  end_ = max_length_;
  if (type == kJournalSuperV2) ELIDEFS_RETURN_IF_ERROR(CheckFeatures());
  if (first_ == 0 || first_ >= end_ || end_ - first_ < kMinLogBlocks / 2) {
    return CorruptionError("first log block of the journal is out of range");
  }
  if (start_ != 0 && (start_ < first_ || start_ >= end_)) return CorruptionError("journal log start is out of range");
  return absl::OkStatus();
}

void JournalSuperblock::PrepareForWriting(bool volume_is_64bit) {
  MutexLock lock(mutex_);
  auto* raw = reinterpret_cast<JournalSuperBlock*>(bytes_.get());
  if (raw->s_header.h_blocktype == kJournalSuperV1) {
    raw->s_header.h_blocktype = static_cast<uint32_t>(kJournalSuperV2);
    const size_t known = offsetof(JournalSuperBlock, s_feature_compat);
    std::memset(bytes_.get() + known, 0, sizeof(JournalSuperBlock) - known);
    raw->s_nr_users = 1;
  }
  raw->s_feature_compat = raw->s_feature_compat & ~kJournalCompatChecksum;
  uint32_t incompat = raw->s_feature_incompat & ~(kJournalCsumV2 | kJournalAsyncCommit | kJournal64Bit);
  incompat |= kJournalCsumV3 | (volume_is_64bit ? kJournal64Bit : 0U);
  raw->s_feature_incompat = incompat;
  raw->s_checksum_type = kJournalChecksumCrc32c;
  format_.checksum = LogChecksum::kV3;
  format_.is_64bit = volume_is_64bit;
  std::memcpy(format_.uuid, raw->s_uuid, sizeof(format_.uuid));
  format_.checksum_seed = Crc32c(~0U, raw->s_uuid, sizeof(raw->s_uuid));
}

bool JournalSuperblock::SetRevokeFeature() {
  MutexLock lock(mutex_);
  auto* raw = reinterpret_cast<JournalSuperBlock*>(bytes_.get());
  if ((raw->s_feature_incompat & kJournalRevokeFeature) != 0) return false;
  raw->s_feature_incompat = raw->s_feature_incompat | kJournalRevokeFeature;
  return true;
}

int JournalSuperblock::Write(absl::FunctionRef<void(JournalSuperBlock&)> change) {
  MutexLock lock(mutex_);
  auto* raw = reinterpret_cast<JournalSuperBlock*>(bytes_.get());
  change(*raw);
  const bool checksummed = raw->s_header.h_blocktype == kJournalSuperV2 &&
                           (raw->s_feature_incompat & (kJournalCsumV2 | kJournalCsumV3)) != 0;
  if (checksummed) raw->s_checksum = SuperblockChecksum(*raw);
  blockio::Ticket need = blockio::kNoNeed;
  const int error = queue_->Write(block_ * block_bytes_, bytes_.get(), block_bytes_, &need);
  if (error == 0) need_.store(std::max(need, need_.load(std::memory_order_relaxed)), std::memory_order_release);
  return error;
}

}  // namespace elidefs::core
