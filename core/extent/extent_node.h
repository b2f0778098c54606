// ExtentNode and ExtentPath: one node of an extent tree, in the inode or in a block of its own, and the way from the
// root to a leaf. Source of the format and its invariants: Documentation/filesystems/ext4, "Extent Tree".
//
// Ownership: a node points into the inode's block_area or a cached block; the path holds the blocks. All of it is used
// under the inode's mutex, which the public methods of ExtentTree require, and never outlives the call.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cache/block_cache.h"
#include "core/inode/inode.h"
#include "core/ondisk/inode_layout.h"
#include "core/volume_context.h"

namespace elidefs::core {

// Logical blocks run from 0 to one below this; the exclusive end of every range fits 32 bits.
inline constexpr uint64_t kLogicalBlockEnd = 0xFFFFFFFFU;

struct Extent {
  LogicalBlock logical = 0;
  uint32_t length = 0;
  BlockNumber physical = 0;
  bool unwritten = false;

  uint64_t end() const { return static_cast<uint64_t>(logical) + length; }
  bool operator==(const Extent& other) const = default;
};

// The most blocks one on-disk extent of this kind can hold.
inline uint32_t MaxExtentBlocks(bool unwritten) {
  return unwritten ? kExtentMaxUnwrittenBlocks : kExtentMaxInitBlocks;
}

// True if one extent can take the place of these two.
bool CanMerge(const Extent& left, const Extent& right);

// A leaf or index entry as it lies in a node: 12 bytes that begin with the logical block, its key.
static_assert(sizeof(ExtentLeaf) == sizeof(ExtentIndex));
using ExtentSlot = std::array<uint8_t, sizeof(ExtentLeaf)>;
ExtentSlot EncodeExtent(const Extent& extent);
ExtentSlot EncodeIndex(LogicalBlock key, BlockNumber child);

// A view; slot numbers must be below `max` (the header was checked by CheckExtentHeader).
class ExtentNode {
 public:
  ExtentNode() = default;
  explicit ExtentNode(uint8_t* bytes) : bytes_(bytes) {}

  uint16_t magic() const { return header()->eh_magic; }
  uint32_t entries() const { return header()->eh_entries; }
  uint32_t max() const { return header()->eh_max; }
  uint32_t depth() const { return header()->eh_depth; }
  LogicalBlock Key(uint32_t slot) const { return reinterpret_cast<const Le32*>(SlotBytes(slot))->Get(); }
  Extent At(uint32_t slot) const;          // depth 0
  BlockNumber Child(uint32_t slot) const;  // depth > 0
  // Slots whose key is at most `logical`.
  uint32_t CountUpTo(LogicalBlock logical) const;

  void Initialize(uint32_t max_entries, uint32_t depth);
  void SetEntries(uint32_t entries) {
    header()->eh_entries = static_cast<uint16_t>(entries);
    if (entries > max()) SetMax(entries);
  }
  void SetMax(uint32_t entries) { header()->eh_max = static_cast<uint16_t>(entries); }
  void SetDepth(uint32_t depth) { header()->eh_depth = static_cast<uint16_t>(depth); }
  void SetKey(uint32_t slot, LogicalBlock key) { reinterpret_cast<Le32*>(SlotBytes(slot))->Set(key); }
  void Put(uint32_t slot, const ExtentSlot& entry) { std::memcpy(SlotBytes(slot), entry.data(), entry.size()); }
  ExtentSlot Get(uint32_t slot) const;
  // These entries and no others. Here and below, eh_max rises with the entries; that they fit is the caller's matter.
  void Assign(absl::Span<const ExtentSlot> entries);
  void InsertAt(uint32_t slot, const ExtentSlot& entry);
  // Closes the gap and zeroes what falls free.
  void RemoveAt(uint32_t slot, uint32_t count);
  // Appends the entries from `slot` on to `other` and removes them here.
  void MoveTail(uint32_t slot, ExtentNode other);

 private:
  const ExtentHeader* header() const { return reinterpret_cast<const ExtentHeader*>(bytes_); }
  ExtentHeader* header() { return reinterpret_cast<ExtentHeader*>(bytes_); }
  uint8_t* SlotBytes(uint32_t slot) const { return bytes_ + sizeof(ExtentHeader) + slot * sizeof(ExtentLeaf); }

  uint8_t* bytes_ = nullptr;
};

// What the functions below need of an inode, so that they carry no lock annotations of their own.
struct ExtentOwner {
  VolumeContext* context = nullptr;
  InodeNumber inode = 0;
  uint32_t checksum_seed = 0;
  bool metadata_content = false;  // the mapped blocks are journaled metadata (directories, symlinks)
  uint8_t* root = nullptr;        // block_area
  uint64_t* blocks_512 = nullptr;
  ExtentShape* shape = nullptr;
  bool has_extents = false;

  const Geometry& geometry() const { return context->geometry; }
  uint64_t SectorsOf(uint64_t blocks) const { return blocks * (geometry().block_bytes / 512U); }
  uint32_t BlockNodeCapacity() const;
};
ExtentOwner MakeExtentOwner(VolumeContext* context, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(inode.mutex);

// True if a file may own these blocks: inside the volume and not superblock, descriptor, bitmap or inode table.
bool MayBelongToFile(const VolumeContext& context, BlockNumber start, uint64_t count);

inline constexpr int kAnyDepth = -1;
// `block` is 0 for the root. Entries are bounded by eh_max and eh_max by `node_bytes`: afterwards every slot access is
// safe.
absl::Status CheckExtentHeader(const ExtentOwner& owner, BlockNumber block, ExtentNode node, uint32_t node_bytes,
                               int expected_depth);
// Order, overlap, lengths, ranges inside the volume; keys in [lower, upper).
absl::Status CheckExtentEntries(const ExtentOwner& owner, BlockNumber block, ExtentNode node, uint64_t lower,
                                uint64_t upper);

struct ExtentLevel {
  BufferRef buffer;  // null: the root
  ExtentNode node;
  // Index node: the slot that is followed. Leaf: how many extents begin at or before the block asked for, which is also
  // where an extent that begins there would be inserted.
  uint32_t slot = 0;

  BlockNumber block() const { return buffer == nullptr ? 0 : buffer->block_number(); }
};

struct ExtentPath {
  std::vector<ExtentLevel> levels;    // the root first; at most kExtentMaxDepth + 1
  uint64_t upper = kLogicalBlockEnd;  // where the next leaf begins
  ExtentLevel& leaf() { return levels.back(); }
};

// The path to the leaf that holds or would hold `logical`. Every node on it is checked. EUCLEAN, EIO; EOPNOTSUPP for
// inodes without extents.
absl::StatusOr<ExtentPath> DescendExtents(const ExtentOwner& owner, LogicalBlock logical);
// The path to the node on the last level of `path` that lies beside its last node; without levels if there is none.
absl::StatusOr<ExtentPath> DescendToNeighbour(const ExtentOwner& owner, const ExtentPath& path, bool right);
// Reads and checks the node below slot `slot` of `parent`; `lower` and `upper` bound its keys.
absl::StatusOr<ExtentLevel> ReadExtentChild(const ExtentOwner& owner, const ExtentLevel& parent, uint32_t slot,
                                            uint64_t upper);

}  // namespace elidefs::core
