#include "core/extent/extent_node.h"

#include <cassert>
#include <cerrno>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/group_table.h"
#include "core/ondisk/checksums.h"

namespace elidefs::core {
namespace {

absl::Status NodeError(const ExtentOwner& owner, BlockNumber block, std::string_view fault) {
  const std::string place = block == 0 ? std::string("extent root") : absl::StrCat("extent block ", block);
  return CorruptionError(absl::StrCat("inode ", owner.inode, ": ", place, ": ", std::string(fault)));
}

absl::Status EntryError(const ExtentOwner& owner, BlockNumber block, uint32_t slot, std::string_view fault) {
  return NodeError(owner, block, absl::StrCat("entry ", slot, ": ", std::string(fault)));
}

// What a block from the device must satisfy whoever its parent is. The more expensive test against system blocks is
// made here for all entries and, on later accesses, for the entries that are used.
absl::Status VerifyLoadedNode(const ExtentOwner& owner, BlockNumber block, absl::Span<const uint8_t> bytes) {
  // The view has no const form; nothing is written through it.
  const ExtentNode node(const_cast<uint8_t*>(bytes.data()));
  ELIDEFS_RETURN_IF_ERROR(CheckExtentHeader(owner, block, node, static_cast<uint32_t>(bytes.size()), kAnyDepth));
  if (!VerifyExtentBlockChecksum(owner.geometry(), owner.checksum_seed, bytes.data())) {
    return NodeError(owner, block, "wrong checksum");
  }
  ELIDEFS_RETURN_IF_ERROR(CheckExtentEntries(owner, block, node, 0, kLogicalBlockEnd));
  for (uint32_t slot = 0; slot < node.entries(); ++slot) {
    const bool allowed = node.depth() > 0
                             ? MayBelongToFile(*owner.context, node.Child(slot), 1)
                             : MayBelongToFile(*owner.context, node.At(slot).physical, node.At(slot).length);
    if (!allowed) return EntryError(owner, block, slot, "points at blocks of the filesystem itself");
  }
  return absl::OkStatus();
}

}  // namespace

bool CanMerge(const Extent& left, const Extent& right) {
  return left.unwritten == right.unwritten && left.end() == right.logical &&
         left.physical + left.length == right.physical && left.length + right.length <= MaxExtentBlocks(left.unwritten);
}

ExtentSlot EncodeExtent(const Extent& extent) {
  assert(extent.length > 0 && extent.length <= MaxExtentBlocks(extent.unwritten));
  ExtentLeaf leaf;
  leaf.ee_block = extent.logical;
  leaf.ee_len = static_cast<uint16_t>(extent.unwritten ? extent.length + kExtentMaxInitBlocks : extent.length);
  leaf.ee_start_hi = static_cast<uint16_t>(extent.physical >> 32U);
  leaf.ee_start_lo = static_cast<uint32_t>(extent.physical);
  ExtentSlot slot;
  std::memcpy(slot.data(), &leaf, sizeof(leaf));
  return slot;
}

ExtentSlot EncodeIndex(LogicalBlock key, BlockNumber child) {
  ExtentIndex index;
  index.ei_block = key;
  index.ei_leaf_lo = static_cast<uint32_t>(child);
  index.ei_leaf_hi = static_cast<uint16_t>(child >> 32U);
  index.ei_unused = 0;
  ExtentSlot slot;
  std::memcpy(slot.data(), &index, sizeof(index));
  return slot;
}

Extent ExtentNode::At(uint32_t slot) const {
  const auto* leaf = reinterpret_cast<const ExtentLeaf*>(SlotBytes(slot));
  const uint32_t length = leaf->ee_len;
  Extent extent;
  extent.logical = leaf->ee_block;
  extent.unwritten = length > kExtentMaxInitBlocks;
  extent.length = extent.unwritten ? length - kExtentMaxInitBlocks : length;
  extent.physical = static_cast<BlockNumber>(leaf->ee_start_hi) << 32U | leaf->ee_start_lo;
  return extent;
}

BlockNumber ExtentNode::Child(uint32_t slot) const {
  const auto* index = reinterpret_cast<const ExtentIndex*>(SlotBytes(slot));
  return static_cast<BlockNumber>(index->ei_leaf_hi) << 32U | index->ei_leaf_lo;
}

uint32_t ExtentNode::CountUpTo(LogicalBlock logical) const {
  uint32_t low = 0;
  uint32_t high = entries();
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (Key(middle) <= logical) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

ExtentSlot ExtentNode::Get(uint32_t slot) const {
  ExtentSlot entry;
  std::memcpy(entry.data(), SlotBytes(slot), entry.size());
  return entry;
}

void ExtentNode::Assign(absl::Span<const ExtentSlot> entries) {
  RemoveAt(0, this->entries());
  for (uint32_t slot = 0; slot < entries.size(); ++slot) Put(slot, entries[slot]);
  SetEntries(static_cast<uint32_t>(entries.size()));
}

void ExtentNode::Initialize(uint32_t max_entries, uint32_t depth) {
  header()->eh_magic = kExtentMagic;
  header()->eh_entries = 0;
  header()->eh_max = static_cast<uint16_t>(max_entries);
  header()->eh_depth = static_cast<uint16_t>(depth);
  header()->eh_generation = 0;
}

void ExtentNode::InsertAt(uint32_t slot, const ExtentSlot& entry) {
  assert(slot <= entries());
  std::memmove(SlotBytes(slot + 1), SlotBytes(slot), (entries() - slot) * sizeof(ExtentLeaf));
  Put(slot, entry);
  SetEntries(entries() + 1);
}

void ExtentNode::RemoveAt(uint32_t slot, uint32_t count) {
  assert(slot + count <= entries());
  const uint32_t left = entries() - count;
  std::memmove(SlotBytes(slot), SlotBytes(slot + count), (left - slot) * sizeof(ExtentLeaf));
  std::memset(SlotBytes(left), 0, count * sizeof(ExtentLeaf));
  SetEntries(left);
}

void ExtentNode::MoveTail(uint32_t slot, ExtentNode other) {
  const uint32_t count = entries() - slot;
  std::memcpy(other.SlotBytes(other.entries()), SlotBytes(slot), count * sizeof(ExtentLeaf));
  other.SetEntries(other.entries() + count);
  RemoveAt(slot, count);
}

uint32_t ExtentOwner::BlockNodeCapacity() const {
  // The checksum needs no room of its own: no block size is a multiple of 12 plus 12, the rest holds the tail.
  return (geometry().block_bytes - sizeof(ExtentHeader)) / sizeof(ExtentLeaf);
}

ExtentOwner MakeExtentOwner(VolumeContext* context, Inode& inode) {
  ExtentOwner owner;
  owner.context = context;
  owner.inode = inode.number;
  owner.checksum_seed = InodeChecksumSeed(context->geometry, inode.number, inode.generation);
  owner.metadata_content = inode.IsDirectory() || inode.IsSymlink();
  owner.root = inode.block_area.data();
  owner.blocks_512 = &inode.blocks_512;
  owner.shape = &inode.extent_shape;
  owner.has_extents = inode.HasExtents();
  return owner;
}

bool MayBelongToFile(const VolumeContext& context, BlockNumber start, uint64_t count) {
  if (!context.geometry.IsDataBlockValid(start, count)) return false;
  return context.groups == nullptr || !context.groups->IsSystemBlock(start, count);
}

absl::Status CheckExtentHeader(const ExtentOwner& owner, BlockNumber block, ExtentNode node, uint32_t node_bytes,
                               int expected_depth) {
  if (node.magic() != kExtentMagic) return NodeError(owner, block, "wrong magic number");
  const uint32_t tail_bytes = block != 0 && owner.geometry().metadata_csum() ? sizeof(ExtentTail) : 0;
  // A node with room for fewer than 4 entries could not be split in the middle.
  if (node.max() < 4 || sizeof(ExtentHeader) + node.max() * sizeof(ExtentLeaf) + tail_bytes > node_bytes) {
    return NodeError(owner, block, "capacity does not fit the node");
  }
  if (node.entries() > node.max()) return NodeError(owner, block, "more entries than its capacity");
  if (node.depth() > kExtentMaxDepth) return NodeError(owner, block, "impossible depth");
  if (expected_depth != kAnyDepth && node.depth() != static_cast<uint32_t>(expected_depth)) {
    return NodeError(owner, block, "depth does not match its parent's");
  }
  if (node.depth() > 0 && node.entries() == 0) return NodeError(owner, block, "index node without entries");
  return absl::OkStatus();
}

absl::Status CheckExtentEntries(const ExtentOwner& owner, BlockNumber block, ExtentNode node, uint64_t lower,
                                uint64_t upper) {
  uint64_t free_from = lower;
  for (uint32_t slot = 0; slot < node.entries(); ++slot) {
    const uint64_t key = node.Key(slot);
    if (key < free_from) return EntryError(owner, block, slot, "out of order, overlapping or before its parent's key");
    if (node.depth() > 0) {
      if (!owner.geometry().IsDataBlockValid(node.Child(slot), 1)) {
        return EntryError(owner, block, slot, "child outside the volume");
      }
      free_from = key + 1;
    } else {
      const Extent extent = node.At(slot);
      if (extent.length == 0) return EntryError(owner, block, slot, "empty extent");
      if (!owner.geometry().IsDataBlockValid(extent.physical, extent.length)) {
        return EntryError(owner, block, slot, "blocks outside the volume");
      }
      free_from = extent.end();
    }
    if (free_from > upper) return EntryError(owner, block, slot, "beyond the next node's first block");
  }
  return absl::OkStatus();
}

absl::StatusOr<ExtentLevel> ReadExtentChild(const ExtentOwner& owner, const ExtentLevel& parent, uint32_t slot,
                                            uint64_t upper) {
  const BlockNumber block = parent.node.Child(slot);
  if (!MayBelongToFile(*owner.context, block, 1)) {
    return EntryError(owner, parent.block(), slot, "child is a block of the filesystem itself");
  }
  // Two references: the closure fits std::function without allocation.
  const auto verify = [&owner, &block](absl::Span<const uint8_t> bytes) {
    return VerifyLoadedNode(owner, block, bytes);
  };
  ELIDEFS_ASSIGN_OR_RETURN(BufferRef buffer, owner.context->cache->Read(block, verify));
  ExtentLevel child;
  child.node = ExtentNode(buffer->data());
  child.buffer = std::move(buffer);
  const uint64_t lower = parent.node.Key(slot);
  ELIDEFS_RETURN_IF_ERROR(CheckExtentHeader(owner, block, child.node, child.buffer->size_bytes(),
                                            static_cast<int>(parent.node.depth()) - 1));
  ELIDEFS_RETURN_IF_ERROR(CheckExtentEntries(owner, block, child.node, lower, upper));
  // The format's rule, which the kernel enforces as well: a parent's key is its child's first key.
  if (child.node.entries() > 0 && child.node.Key(0) != lower) {
    return NodeError(owner, block, "first key differs from its parent's");
  }
  return child;
}

absl::StatusOr<ExtentPath> DescendExtents(const ExtentOwner& owner, LogicalBlock logical) {
  if (!owner.has_extents) {
    return ErrnoError(EOPNOTSUPP, absl::StrCat("inode ", owner.inode,
                                               " is block-mapped (ext3 style): it can be read "
                                               "only; copy the file to convert it"));
  }
  ExtentPath path;
  path.levels.reserve(4);
  path.levels.emplace_back();
  path.levels.back().node = ExtentNode(owner.root);
  ELIDEFS_RETURN_IF_ERROR(CheckExtentHeader(owner, 0, path.levels.back().node, kInodeBlockBytes, kAnyDepth));
  ELIDEFS_RETURN_IF_ERROR(CheckExtentEntries(owner, 0, path.levels.back().node, 0, kLogicalBlockEnd));
  // Ends: the depth decreases by one at each level, which ReadExtentChild checks.
  while (true) {
    ExtentLevel& level = path.levels.back();
    const uint32_t up_to = level.node.CountUpTo(logical);
    if (level.node.depth() == 0) {
      level.slot = up_to;
      return path;
    }
    level.slot = up_to == 0 ? 0 : up_to - 1;
    if (level.slot + 1 < level.node.entries()) path.upper = level.node.Key(level.slot + 1);
    ELIDEFS_ASSIGN_OR_RETURN(ExtentLevel child, ReadExtentChild(owner, level, level.slot, path.upper));
    path.levels.push_back(std::move(child));
  }
}

absl::StatusOr<ExtentPath> DescendToNeighbour(const ExtentOwner& owner, const ExtentPath& path, bool right) {
  const size_t level = path.levels.size() - 1;
  size_t turn = level;  // one below the lowest level on which the way can go further to that side
  for (; turn > 0; --turn) {
    const ExtentLevel& parent = path.levels[turn - 1];
    if (right ? parent.slot + 1 < parent.node.entries() : parent.slot > 0) break;
  }
  ExtentPath neighbour;
  if (turn == 0) return neighbour;
  neighbour.levels.reserve(level + 1);
  for (size_t i = 0; i <= level; ++i) {
    if (i < turn) {
      neighbour.levels.push_back(path.levels[i]);
    } else {
      const ExtentLevel& parent = neighbour.levels.back();
      ELIDEFS_ASSIGN_OR_RETURN(ExtentLevel child, ReadExtentChild(owner, parent, parent.slot, neighbour.upper));
      child.slot = right || child.node.entries() == 0 ? 0 : child.node.entries() - 1;
      neighbour.levels.push_back(std::move(child));
    }
    ExtentLevel& here = neighbour.levels.back();
    if (i + 1 == turn) here.slot = right ? here.slot + 1 : here.slot - 1;
    if (i < level && here.slot + 1 < here.node.entries()) neighbour.upper = here.node.Key(here.slot + 1);
  }
  return neighbour;
}

}  // namespace elidefs::core
