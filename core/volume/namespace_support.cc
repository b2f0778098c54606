#include "core/volume/namespace_support.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/error.h"
#include "core/inode/inode_store.h"

namespace elidefs::core {
absl::Status CheckName(std::string_view name) {
  if (name.empty()) return ErrnoError(ENOENT, "an empty name");
  if (name.size() > kMaxNameBytes) return ErrnoError(ENAMETOOLONG, "a name has at most 255 bytes");
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return ErrnoError(EINVAL, "a name holds neither '/' nor a zero byte");
  }
  return absl::OkStatus();
}

uint8_t DirectoryTypeOfMode(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return kTypeRegular;
    case S_IFDIR:
      return kTypeDirectory;
    case S_IFCHR:
      return kTypeCharDevice;
    case S_IFBLK:
      return kTypeBlockDevice;
    case S_IFIFO:
      return kTypeFifo;
    case S_IFSOCK:
      return kTypeSocket;
    case S_IFLNK:
      return kTypeSymlink;
    default:
      return kTypeUnknown;
  }
}

uint32_t ModeOfDirectoryType(uint8_t file_type) {
  switch (file_type) {
    case kTypeRegular:
      return S_IFREG;
    case kTypeDirectory:
      return S_IFDIR;
    case kTypeCharDevice:
      return S_IFCHR;
    case kTypeBlockDevice:
      return S_IFBLK;
    case kTypeFifo:
      return S_IFIFO;
    case kTypeSocket:
      return S_IFSOCK;
    case kTypeSymlink:
      return S_IFLNK;
    default:
      return 0;
  }
}

absl::Status CheckAlive(const Inode& inode) {
  // Without links and uses the deletion is scheduled; nobody may come back to the inode then.
  if (inode.deleted || (inode.links == 0 && inode.lookups.load(std::memory_order_acquire) == 0)) {
    return ErrnoError(ENOENT, absl::StrCat("inode ", inode.number, " was removed"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayAdd(const Inode& directory) {
  if (!directory.IsDirectory()) {
    return ErrnoError(ENOTDIR, absl::StrCat("inode ", directory.number, " is not a directory"));
  }
  if (directory.deleted || directory.links == 0) {
    return ErrnoError(ENOENT, absl::StrCat("directory ", directory.number, " was removed"));
  }
  if ((directory.flags & kInodeImmutable) != 0) {
    return ErrnoError(EPERM, absl::StrCat("directory ", directory.number, " is immutable"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayRemove(const Inode& directory) {
  ELIDEFS_RETURN_IF_ERROR(CheckMayAdd(directory));
  if ((directory.flags & kInodeAppend) != 0) {
    return ErrnoError(EPERM, absl::StrCat("directory ", directory.number, " is append-only"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayChangeLinks(const Inode& inode) {
  if ((inode.flags & (kInodeImmutable | kInodeAppend)) != 0) {
    return ErrnoError(EPERM, absl::StrCat("inode ", inode.number, " is immutable or append-only"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayAddSubdirectory(const Geometry& geometry, const Inode& directory) {
  if (directory.links >= kMaxLinks && (geometry.feature_ro_compat & kRoCompatDirNlink) == 0) {
    return ErrnoError(EMLINK, absl::StrCat("directory ", directory.number, " has ", directory.links, " links"));
  }
  return absl::OkStatus();
}

void AddSubdirectoryLink(const Geometry& geometry, Inode& directory) {
  if (directory.links == 1) return;  // beyond counting
  const bool counts = (geometry.feature_ro_compat & kRoCompatDirNlink) == 0 || directory.links < kMaxLinks;
  directory.links = counts ? directory.links + 1 : 1;
}

void RemoveSubdirectoryLink(Inode& directory) {
  if (directory.links > 2) --directory.links;
}

absl::Status WriteInode(VolumeContext& context, DirtyTimes& dirty_times, Handle& handle, Inode& inode, bool datasync) {
  ELIDEFS_RETURN_IF_ERROR(context.inode_store->Write(handle, inode));
  inode.JoinTransaction(handle.transaction(), datasync);
  dirty_times.Remove(inode);
  return absl::OkStatus();
}

bool OwnsBlocksWithoutExtents(const Inode& inode, const Geometry& geometry) {
  const uint64_t attributes = inode.xattr_block != 0 ? geometry.block_bytes / 512 : 0;
  return !inode.HasExtents() && inode.blocks_512 > attributes;
}

absl::Status CheckMayDelete(const Inode& inode, const Geometry& geometry) {
  if (!OwnsBlocksWithoutExtents(inode, geometry)) return absl::OkStatus();
  return ErrnoError(EOPNOTSUPP,
                    absl::StrCat("inode ", inode.number,
                                 " is block-mapped (ext3) and cannot be deleted here; use the kernel's ext4"));
}

absl::Status ReportDamage(const VolumeContext& context, absl::Status status) {
  if (StatusToErrno(status) != EUCLEAN || !context.on_corruption) return status;
  return context.on_corruption(std::move(status));
}

absl::Status AbandonChange(const VolumeContext& context, absl::Status status) {
  status = ReportDamage(context, std::move(status));
  context.journal->Abort(status);  // errors=continue does not cover half a change
  return status;
}

void EncodeDevice(Inode& inode, uint32_t major_number, uint32_t minor_number) {
  inode.block_area.fill(0);
  Le32 word;
  if (major_number < 256 && minor_number < 256) {
    word = (major_number << 8U) | minor_number;
    std::memcpy(inode.block_area.data(), &word, sizeof(word));
  } else {
    word = (minor_number & 0xFFU) | (major_number << 8U) | ((minor_number & ~0xFFU) << 12U);
    std::memcpy(inode.block_area.data() + sizeof(word), &word, sizeof(word));
  }
}

uint64_t DecodeDevice(const Inode& inode) {
  Le32 words[2];
  std::memcpy(words, inode.block_area.data(), sizeof(words));
  if (words[0] != 0) return makedev((words[0] >> 8U) & 0xFFU, words[0] & 0xFFU);
  return makedev((words[1] >> 8U) & 0xFFFU, (words[1] & 0xFFU) | ((words[1] >> 12U) & 0xFFF00U));
}

}  // namespace elidefs::core
