// Insert and ConvertToWritten.
#include <algorithm>
#include <cerrno>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_edit.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

// What takes the place of which slots: the new extents and those neighbours in the leaf that merge with them.
struct Replacement {
  absl::InlinedVector<Extent, 5> extents;
  uint32_t first_slot = 0;
  uint32_t count = 0;
};

// `middle` replaces the slots [begin, end).
Replacement WithNeighbours(const ExtentLevel& leaf, uint32_t begin, uint32_t end, absl::Span<const Extent> middle) {
  Replacement result;
  if (begin > 0 && CanMerge(leaf.node.At(begin - 1), middle.front())) {
    --begin;
    result.extents.push_back(leaf.node.At(begin));
  }
  result.extents.insert(result.extents.end(), middle.begin(), middle.end());
  if (end < leaf.node.entries() && CanMerge(middle.back(), leaf.node.At(end))) {
    result.extents.push_back(leaf.node.At(end));
    ++end;
  }
  result.first_slot = begin;
  result.count = end - begin;
  return result;
}

absl::Status RangeError(InodeNumber inode, int error, LogicalBlock logical, uint64_t length, const char* fault) {
  return ErrnoError(error, absl::StrCat("inode ", inode, ": logical blocks ", logical, "+", length, ": ", fault));
}

}  // namespace

absl::Status ExtentTree::Insert(Handle& handle, LogicalBlock logical, BlockNumber physical, uint32_t length,
                                bool unwritten, bool promised) {
  const uint64_t end = static_cast<uint64_t>(logical) + length;
  if (end > kLogicalBlockEnd) return RangeError(inode_->number, EFBIG, logical, length, "beyond the largest file");
  if (length == 0 || length > MaxExtentBlocks(unwritten)) {
    return RangeError(inode_->number, EINVAL, logical, length, "not a valid length of an extent");
  }
  if (!MayBelongToFile(*context_, physical, length)) {
    return RangeError(inode_->number, EINVAL, logical, length, "cannot be mapped to blocks of the filesystem itself");
  }
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, logical));
  const ExtentLevel& leaf = path.leaf();
  const uint32_t slot = leaf.slot;
  const uint64_t next = slot < leaf.node.entries() ? leaf.node.Key(slot) : path.upper;
  if (end > next || (slot > 0 && leaf.node.At(slot - 1).end() > logical)) {
    return RangeError(inode_->number, EEXIST, logical, length, "partly mapped already");
  }
  const Extent extent{logical, length, physical, unwritten};
  const Replacement replacement = WithNeighbours(leaf, slot, slot, {&extent, 1});
  ELIDEFS_RETURN_IF_ERROR(
      ReplaceExtents(owner, handle, path, replacement.first_slot, replacement.count, replacement.extents, promised));
  inode_->blocks_512 += owner.SectorsOf(length);
  return absl::OkStatus();
}

absl::Status ExtentTree::ConvertToWritten(Handle& handle, LogicalBlock logical, uint32_t length, bool promised) {
  const ExtentOwner owner = MakeExtentOwner(context_, *inode_);
  const uint64_t end = static_cast<uint64_t>(logical) + length;
  uint64_t position = logical;
  bool changed = false;
  while (position < end) {
    const auto from = static_cast<LogicalBlock>(position);
    ELIDEFS_ASSIGN_OR_RETURN(ExtentPath path, DescendExtents(owner, from));
    const ExtentLevel& leaf = path.leaf();
    if (leaf.slot == 0 || leaf.node.At(leaf.slot - 1).end() <= position) {
      return RangeError(inode_->number, EINVAL, from, end - position, "not mapped, nothing to convert");
    }
    const uint32_t slot = leaf.slot - 1;
    const Extent extent = leaf.node.At(slot);
    const uint64_t to = std::min(end, extent.end());
    position = to;
    if (!extent.unwritten) continue;
    // The caller's credits cover the first extent; more of them are paid for one by one.
    if (changed && !EnsureCredits(handle, InsertCredits())) {
      return RangeError(inode_->number, EAGAIN, from, end - from, "no credits left to convert this part");
    }
    absl::InlinedVector<Extent, 3> parts;
    if (extent.logical < from) parts.push_back({extent.logical, from - extent.logical, extent.physical, true});
    parts.push_back(
        {from, static_cast<uint32_t>(to - from), extent.physical + (from - extent.logical), /*unwritten=*/false});
    if (to < extent.end()) {
      parts.push_back({static_cast<LogicalBlock>(to), static_cast<uint32_t>(extent.end() - to),
                       extent.physical + (to - extent.logical), true});
    }
    const Replacement replacement = WithNeighbours(leaf, slot, slot + 1, parts);
    ELIDEFS_RETURN_IF_ERROR(
        ReplaceExtents(owner, handle, path, replacement.first_slot, replacement.count, replacement.extents, promised));
    changed = true;
  }
  return absl::OkStatus();
}

}  // namespace elidefs::core
