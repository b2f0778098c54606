// Reading directories.
#include "core/directory/directory.h"

#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/directory_block.h"

namespace elidefs::core {

absl::StatusOr<DirectoryMatch> Directory::Find(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return ErrnoError(ENAMETOOLONG,
                      absl::StrCat("name of ", name.size(), " bytes in directory inode ", inode_->number));
  }
  DirectoryMatch match;
  if (name.empty()) return match;
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  ELIDEFS_ASSIGN_OR_RETURN(const std::optional<DirectoryPlace> place, reader.Locate(*inode_, name));
  if (place.has_value()) {
    match.inode = place->entry.inode;
    match.file_type = place->entry.file_type;
  }
  return match;
}

absl::StatusOr<bool> Directory::IsEmpty() {
  bool empty = true;
  ELIDEFS_RETURN_IF_ERROR(ForEach(0, [&empty](const Entry& entry) {
    empty = entry.name == "." || entry.name == "..";
    return empty;
  }));
  return empty;
}

absl::StatusOr<InodeNumber> Directory::Parent() {
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryMatch match, Find(".."));
  if (match.inode == 0) {
    return CorruptionError(absl::StrCat("directory inode ", inode_->number, " has no entry \"..\""));
  }
  return match.inode;
}

absl::Status Directory::ForEach(uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  ELIDEFS_ASSIGN_OR_RETURN(const DirectoryReader reader, DirectoryReader::Open(context_, *inode_));
  const uint32_t block_bytes = context_->geometry.block_bytes;
  // A cookie is the user's: it may lie anywhere.
  if (cookie / block_bytes >= reader.block_count()) return absl::OkStatus();
  const auto first_block = static_cast<LogicalBlock>(cookie / block_bytes);
  for (LogicalBlock logical = first_block; logical < reader.block_count(); ++logical) {
    // Records are walked from the start of the block, so a cookie whose entry is gone finds the next boundary.
    const auto from = logical == first_block ? static_cast<uint32_t>(cookie % block_bytes) : 0;
    ELIDEFS_ASSIGN_OR_RETURN(const DirectoryBlock block, reader.ReadBlock(*inode_, logical));
    for (uint32_t offset = 0; offset < block.entries_end();) {
      ELIDEFS_ASSIGN_OR_RETURN(const DirectoryEntryView view, block.EntryAt(offset));
      offset += view.record_bytes;
      if (view.inode == 0 || view.offset_bytes < from) continue;
      const uint64_t next_cookie = static_cast<uint64_t>(logical) * block_bytes + offset;
      if (!visit(Entry{view.name, view.inode, view.file_type, next_cookie})) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
