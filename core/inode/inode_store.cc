#include "core/inode/inode_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/alloc/group_table.h"
#include "core/inode/time_codec.h"
#include "core/ondisk/checksums.h"
#include "core/volume_context.h"

namespace elidefs::core {
namespace {

constexpr uint64_t kMaxLogicalBlocks =
    0xFFFFFFFFULL;  // an extent's block number has 32 bits, the last one is not usable
constexpr uint64_t kMaxBlocks32 = 0xFFFFFFFFULL;
constexpr uint64_t kMaxBlocks48 = 0xFFFFFFFFFFFFULL;

absl::Status InodeError(InodeNumber inode, std::string_view what) {
  return CorruptionError(absl::StrCat("inode ", inode, ": ", absl::string_view(what.data(), what.size())));
}

// Whether a field of the extra area, ending at `end_offset`, exists in this inode.
bool ExtraCovers(uint16_t extra_bytes, size_t end_offset) {
  return kGoodOldInodeBytes + size_t{extra_bytes} >= end_offset;
}

template <typename Field>
bool HasField(uint16_t extra_bytes, Field RawInode::*, size_t offset) {
  return ExtraCovers(extra_bytes, offset + sizeof(Field));
}
#define ELIDEFS_HAS_FIELD(extra_bytes, field) HasField(extra_bytes, &RawInode::field, offsetof(RawInode, field))

struct RefusedFlag {
  uint32_t flag;
  const char* name;
};
constexpr RefusedFlag kRefusedFlags[] = {
    {kInodeInlineData, "inline data"},
    {kInodeEncrypt, "encryption"},
    {kInodeEaInode, "an attribute value"},
    {kInodeCasefold, "case folding"},
};

bool IsKnownType(uint16_t mode) {
  return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) || S_ISBLK(mode) || S_ISFIFO(mode) ||
         S_ISSOCK(mode);
}

// i_size's upper half belongs to regular files; in directories older systems kept something else there.
uint64_t DecodeSize(const RawInode& raw) {
  const uint64_t low = raw.i_size_lo;
  return S_ISREG(raw.i_mode) ? low | uint64_t{raw.i_size_high} << 32U : low;
}

absl::Status CheckSize(const Geometry& geometry, InodeNumber inode, const RawInode& raw) {
  const uint64_t size = DecodeSize(raw);
  const uint64_t limit = S_ISLNK(raw.i_mode) ? geometry.block_bytes
                                             : std::min<uint64_t>(kMaxLogicalBlocks << geometry.block_shift,
                                                                  std::numeric_limits<int64_t>::max());
  if (size > limit) return InodeError(inode, absl::StrCat("size ", size, " is impossible"));
  return absl::OkStatus();
}

absl::Status CheckFlags(InodeNumber inode, const RawInode& raw) {
  for (const RefusedFlag& refused : kRefusedFlags) {
    if ((raw.i_flags & refused.flag) != 0) {
      return ErrnoError(EOPNOTSUPP,
                        absl::StrCat("inode ", inode, " uses ", refused.name, ", which elidefs does not support"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExtraSize(const Geometry& geometry, InodeNumber inode, const RawInode& raw) {
  if (geometry.inode_bytes == kGoodOldInodeBytes) return absl::OkStatus();
  const uint32_t extra = raw.i_extra_isize;
  if (extra % 4 == 0 && extra <= geometry.inode_bytes - kGoodOldInodeBytes) return absl::OkStatus();
  return InodeError(inode, absl::StrCat("extra size ", extra, " is impossible"));
}

uint64_t DecodeXattrBlock(const Geometry& geometry, const RawInode& raw) {
  const uint64_t high = geometry.has_64bit() ? raw.i_file_acl_high.Get() : 0;
  return raw.i_file_acl_lo | high << 32U;
}

bool HasHugeFile(const Geometry& geometry) {
  return (geometry.feature_ro_compat & kRoCompatHugeFile) != 0;
}

// i_blocks in 512-byte units, whichever unit the inode counts in.
uint64_t DecodeBlocks(const Geometry& geometry, const RawInode& raw) {
  if (!HasHugeFile(geometry)) return raw.i_blocks_lo;
  const uint64_t blocks = raw.i_blocks_lo | uint64_t{raw.i_blocks_high} << 32U;
  return (raw.i_flags & kInodeHugeFile) != 0 ? blocks << (geometry.block_shift - 9) : blocks;
}

struct EncodedBlocks {
  uint64_t value = 0;
  bool huge = false;
};

absl::StatusOr<EncodedBlocks> EncodeBlocks(const Geometry& geometry, InodeNumber inode, uint64_t blocks_512) {
  if (blocks_512 <= kMaxBlocks32 || (HasHugeFile(geometry) && blocks_512 <= kMaxBlocks48)) {
    return EncodedBlocks{blocks_512, false};
  }
  if (!HasHugeFile(geometry) || blocks_512 >> (geometry.block_shift - 9) > kMaxBlocks48) {
    return ErrnoError(EFBIG, absl::StrCat("inode ", inode, " has more blocks than the volume's inodes can count"));
  }
  return EncodedBlocks{blocks_512 >> (geometry.block_shift - 9), true};
}

Timestamp Now() {
  const timespec now = TimeOfDay();
  return Timestamp{now.tv_sec, static_cast<uint32_t>(now.tv_nsec)};
}

void DecodeTimes(const RawInode& raw, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  const uint16_t extra = inode.extra_bytes;
  inode.atime = DecodeTime(raw.i_atime, ELIDEFS_HAS_FIELD(extra, i_atime_extra) ? raw.i_atime_extra.Get() : 0);
  inode.mtime = DecodeTime(raw.i_mtime, ELIDEFS_HAS_FIELD(extra, i_mtime_extra) ? raw.i_mtime_extra.Get() : 0);
  inode.ctime = DecodeTime(raw.i_ctime, ELIDEFS_HAS_FIELD(extra, i_ctime_extra) ? raw.i_ctime_extra.Get() : 0);
  if (ELIDEFS_HAS_FIELD(extra, i_crtime)) {
    inode.crtime = DecodeTime(raw.i_crtime, ELIDEFS_HAS_FIELD(extra, i_crtime_extra) ? raw.i_crtime_extra.Get() : 0);
  }
}

void Store(const EncodedTime& time, bool with_extra, Le32* seconds, Le32* extra) {
  *seconds = time.seconds_low;
  if (with_extra) *extra = time.extra;
}

void EncodeTimes(const Inode& inode, RawInode* raw) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  const uint16_t extra = inode.extra_bytes;
  const bool atime = ELIDEFS_HAS_FIELD(extra, i_atime_extra);
  const bool mtime = ELIDEFS_HAS_FIELD(extra, i_mtime_extra);
  const bool ctime = ELIDEFS_HAS_FIELD(extra, i_ctime_extra);
  const bool crtime = ELIDEFS_HAS_FIELD(extra, i_crtime_extra);
  Store(EncodeTime(inode.atime, atime), atime, &raw->i_atime, &raw->i_atime_extra);
  Store(EncodeTime(inode.mtime, mtime), mtime, &raw->i_mtime, &raw->i_mtime_extra);
  Store(EncodeTime(inode.ctime, ctime), ctime, &raw->i_ctime, &raw->i_ctime_extra);
  if (ELIDEFS_HAS_FIELD(extra, i_crtime)) {
    Store(EncodeTime(inode.crtime, crtime), crtime, &raw->i_crtime, &raw->i_crtime_extra);
  }
}

void Decode(const Geometry& geometry, const RawInode& raw, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  inode.mode = raw.i_mode;
  inode.uid = raw.i_uid_lo | uint32_t{raw.i_uid_high} << 16U;
  inode.gid = raw.i_gid_lo | uint32_t{raw.i_gid_high} << 16U;
  inode.links = raw.i_links_count;
  inode.flags = raw.i_flags;
  inode.generation = raw.i_generation;
  inode.dtime = raw.i_dtime;
  inode.size_bytes = inode.disk_size_bytes = DecodeSize(raw);
  inode.blocks_512 = DecodeBlocks(geometry, raw);
  inode.xattr_block = DecodeXattrBlock(geometry, raw);
  inode.extra_bytes = geometry.inode_bytes > kGoodOldInodeBytes ? raw.i_extra_isize.Get() : uint16_t{0};
  inode.version = raw.i_version_lo;
  if (ELIDEFS_HAS_FIELD(inode.extra_bytes, i_version_hi)) inode.version |= uint64_t{raw.i_version_hi} << 32U;
  std::memcpy(inode.block_area.data(), raw.i_block, kInodeBlockBytes);
  inode.extent_shape = {};
  DecodeTimes(raw, inode);
}

void Encode(const Geometry& geometry, const Inode& inode, const EncodedBlocks& blocks, RawInode* raw)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex) {
  raw->i_mode = inode.mode;
  raw->i_uid_lo = static_cast<uint16_t>(inode.uid & 0xFFFFU);
  raw->i_uid_high = static_cast<uint16_t>(inode.uid >> 16U);
  raw->i_gid_lo = static_cast<uint16_t>(inode.gid & 0xFFFFU);
  raw->i_gid_high = static_cast<uint16_t>(inode.gid >> 16U);
  raw->i_links_count = static_cast<uint16_t>(inode.links);
  raw->i_flags = inode.flags;
  raw->i_generation = inode.generation;
  raw->i_dtime = inode.dtime;
  raw->i_size_lo = static_cast<uint32_t>(inode.disk_size_bytes & 0xFFFFFFFFU);
  if (S_ISREG(inode.mode)) raw->i_size_high = static_cast<uint32_t>(inode.disk_size_bytes >> 32U);
  raw->i_blocks_lo = static_cast<uint32_t>(blocks.value & 0xFFFFFFFFU);
  if (HasHugeFile(geometry)) raw->i_blocks_high = static_cast<uint16_t>(blocks.value >> 32U);
  raw->i_file_acl_lo = static_cast<uint32_t>(inode.xattr_block & 0xFFFFFFFFU);
  if (geometry.has_64bit()) raw->i_file_acl_high = static_cast<uint16_t>(inode.xattr_block >> 32U);
  raw->i_version_lo = static_cast<uint32_t>(inode.version & 0xFFFFFFFFU);
  if (geometry.inode_bytes > kGoodOldInodeBytes) {
    raw->i_extra_isize = inode.extra_bytes;
    if (ELIDEFS_HAS_FIELD(inode.extra_bytes, i_version_hi)) {
      raw->i_version_hi = static_cast<uint32_t>(inode.version >> 32U);
    }
  }
  std::memcpy(raw->i_block, inode.block_area.data(), kInodeBlockBytes);
  EncodeTimes(inode, raw);
}

#undef ELIDEFS_HAS_FIELD

// Everything that can be wrong with a slot, before a field of it is believed.
absl::Status CheckRaw(const VolumeContext& context, InodeNumber inode, const uint8_t* slot, bool allow_orphan) {
  const Geometry& geometry = context.geometry;
  const auto& raw = *reinterpret_cast<const RawInode*>(slot);
  absl::Status absent = ErrnoError(ENOENT, absl::StrCat("inode ", inode, " is not in use"));
  if (!VerifyInode(geometry, inode, slot)) {
    const bool blank = std::all_of(slot, slot + geometry.inode_bytes, [](uint8_t byte) { return byte == 0; });
    return blank ? absent : InodeError(inode, "checksum is wrong");
  }
  if (raw.i_mode == 0 || (raw.i_links_count == 0 && !allow_orphan)) return absent;
  if (!IsKnownType(raw.i_mode))
    return InodeError(inode, absl::StrCat("mode 0", absl::Hex(raw.i_mode.Get()), " is impossible"));
  ELIDEFS_RETURN_IF_ERROR(CheckFlags(inode, raw));
  ELIDEFS_RETURN_IF_ERROR(CheckExtraSize(geometry, inode, raw));
  ELIDEFS_RETURN_IF_ERROR(CheckSize(geometry, inode, raw));
  const uint64_t xattr_block = DecodeXattrBlock(geometry, raw);
  if (xattr_block != 0 &&
      (!geometry.IsDataBlockValid(xattr_block, 1) || context.groups->IsSystemBlock(xattr_block, 1))) {
    return InodeError(inode, absl::StrCat("attribute block ", xattr_block, " is impossible"));
  }
  return absl::OkStatus();
}

// Damage goes through the volume's errors= policy; a missing or refused inode is an ordinary answer.
absl::Status Report(const VolumeContext& context, absl::Status status) {
  if (StatusToErrno(status) != EUCLEAN || !context.on_corruption) return status;
  return context.on_corruption(std::move(status));
}

}  // namespace

absl::StatusOr<InodeRef> InodeStore::Read(InodeNumber inode, bool allow_orphan) {
  const absl::StatusOr<bool> uninitialized = context_->groups->IsInodeTableSlotUninitialized(inode);
  if (!uninitialized.ok()) return Report(*context_, uninitialized.status());
  if (*uninitialized) return ErrnoError(ENOENT, absl::StrCat("inode ", inode, " is not in use"));
  uint32_t offset_bytes = 0;
  ELIDEFS_ASSIGN_OR_RETURN(const BlockNumber block, context_->groups->InodeTableBlock(inode, &offset_bytes));
  ELIDEFS_ASSIGN_OR_RETURN(BufferRef buffer, context_->cache->Read(block, nullptr));
  std::vector<uint8_t> slot(context_->geometry.inode_bytes);
  {
    MutexLock slot_lock(SlotMutex(inode));
    std::memcpy(slot.data(), buffer->data() + offset_bytes, slot.size());
  }
  if (absl::Status status = CheckRaw(*context_, inode, slot.data(), allow_orphan); !status.ok()) {
    return Report(*context_, std::move(status));
  }
  auto object = std::make_shared<Inode>(inode);
  MutexLock lock(object->mutex);
  // Only the fields up to inode_bytes exist; the copy keeps a 128-byte inode from reaching into its neighbour.
  RawInode raw{};
  std::memcpy(&raw, slot.data(), std::min(sizeof(raw), slot.size()));
  Decode(context_->geometry, raw, *object);
  object->table_buffer = std::move(buffer);
  object->table_offset_bytes = offset_bytes;
  return object;
}

absl::StatusOr<InodeRef> InodeStore::Create(InodeNumber inode, bool slot_uninitialized) {
  const Geometry& geometry = context_->geometry;
  uint32_t offset_bytes = 0;
  ELIDEFS_ASSIGN_OR_RETURN(const BlockNumber block, context_->groups->InodeTableBlock(inode, &offset_bytes));
  // The allocator has put a blank block into the cache when nothing of it was ever used. Should that have been dropped,
  // the block's other slots hold leftovers from the disk: each is blanked here before its first use.
  ELIDEFS_ASSIGN_OR_RETURN(BufferRef buffer, context_->cache->Read(block, nullptr));
  uint8_t* slot = buffer->data() + offset_bytes;
  uint32_t old_generation = 0;
  {
    MutexLock slot_lock(SlotMutex(inode));
    if (!slot_uninitialized) old_generation = reinterpret_cast<const RawInode*>(slot)->i_generation;
    std::memset(slot, 0, geometry.inode_bytes);
  }
  auto object = std::make_shared<Inode>(inode);
  MutexLock lock(object->mutex);
  object->generation = old_generation + 1;
  object->extra_bytes = static_cast<uint16_t>(geometry.want_extra_inode_bytes);
  object->crtime = Now();
  object->atime = object->mtime = object->ctime = object->crtime;
  object->table_buffer = std::move(buffer);
  object->table_offset_bytes = offset_bytes;
  return object;
}

absl::Status InodeStore::Write(Handle& handle, Inode& inode) {
  const Geometry& geometry = context_->geometry;
  ELIDEFS_ASSIGN_OR_RETURN(const EncodedBlocks blocks, EncodeBlocks(geometry, inode.number, inode.blocks_512));
  if (S_ISREG(inode.mode) && inode.disk_size_bytes > geometry.MaxFileSizeByFeatures()) {
    return ErrnoError(EFBIG, "files above 2 GiB need the large_file feature; tune2fs -O large_file");
  }
  if (inode.links > std::numeric_limits<uint16_t>::max()) {
    return ErrnoError(EMLINK, absl::StrCat("inode ", inode.number, " has ", inode.links, " links"));
  }
  inode.flags = blocks.huge ? inode.flags | kInodeHugeFile : inode.flags & ~static_cast<uint32_t>(kInodeHugeFile);
  MutexLock slot_lock(SlotMutex(inode.number));
  handle.Dirty(inode.table_buffer);
  uint8_t* slot = inode.table_buffer->data() + inode.table_offset_bytes;
  const size_t known_bytes = std::min<size_t>(sizeof(RawInode), geometry.inode_bytes);
  RawInode raw{};
  std::memcpy(&raw, slot, known_bytes);
  Encode(geometry, inode, blocks, &raw);
  std::memcpy(slot, &raw, known_bytes);
  SetInodeChecksum(geometry, inode.number, slot);
  return absl::OkStatus();
}

absl::Status InodeStore::WriteDtime(Handle& handle, Inode& inode, uint32_t dtime, const BufferRef& table_buffer,
                                    uint32_t table_offset_bytes) {
  MutexLock slot_lock(SlotMutex(inode.number));
  // In memory as well: the inode's own next Write encodes it.
  inode.dtime.store(dtime, std::memory_order_relaxed);
  handle.Dirty(table_buffer);
  uint8_t* slot = table_buffer->data() + table_offset_bytes;
  reinterpret_cast<RawInode*>(slot)->i_dtime = dtime;
  SetInodeChecksum(context_->geometry, inode.number, slot);
  return absl::OkStatus();
}

}  // namespace elidefs::core
