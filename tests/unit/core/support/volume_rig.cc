#include "tests/unit/core/support/volume_rig.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/ondisk/inode_layout.h"
#include "core/ondisk/validate.h"

namespace elidefs::core {
namespace {

void Require(const absl::Status& status, const char* what) {
  if (!status.ok()) throw std::runtime_error(std::string(what) + ": " + status.ToString());
}

template <typename T>
T Take(absl::StatusOr<T> value, const char* what) {
  Require(value.status(), what);
  return *std::move(value);
}

// The journal of a fresh image: all its extents fit the inode.
std::vector<BlockRange> JournalBlocks(InodeStore& store, InodeNumber journal_inode) {
  const InodeRef inode = Take(store.Read(journal_inode, false), "journal inode");
  MutexLock lock(inode->mutex);
  const auto* header = reinterpret_cast<const ExtentHeader*>(inode->block_area.data());
  if (header->eh_magic != kExtentMagic || header->eh_depth != 0)
    throw std::runtime_error("journal needs a deeper tree");
  const auto* extents = reinterpret_cast<const ExtentLeaf*>(header + 1);
  std::vector<BlockRange> ranges;
  for (uint32_t i = 0; i < header->eh_entries; ++i) {
    ranges.push_back({extents[i].ee_start_lo | uint64_t{extents[i].ee_start_hi} << 32U, extents[i].ee_len});
  }
  return ranges;
}

}  // namespace

SuperBlock SuperBlockOf(const std::vector<uint8_t>& image) {
  SuperBlock super_block;
  std::memcpy(&super_block, image.data() + kSuperBlockOffsetBytes, sizeof(super_block));
  return super_block;
}

absl::StatusOr<Geometry> ValidateImage(const std::vector<uint8_t>& image, bool read_write) {
  return ValidateSuperBlock(SuperBlockOf(image), image.size(), 512, read_write);
}

VolumeRig::VolumeRig(std::vector<uint8_t> image, bool read_write, uint64_t cache_bytes) {
  const InodeNumber journal_inode = SuperBlockOf(image).s_journal_inum;
  context.geometry = Take(ValidateImage(image, read_write), "superblock");
  context.read_only = !read_write;
  blockio::MemoryDeviceOptions options;
  options.size_bytes = image.size();
  device_ = blockio::MemoryDevice::FromBytes(std::move(image), options);
  context.queue = Take(blockio::RequestQueue::Create(device_.get(), {}), "queue");
  context.cache = std::make_unique<BlockCache>(context.queue.get(), context.geometry.block_bytes,
                                               context.geometry.block_count, cache_bytes);
  context.groups = std::make_unique<GroupTable>(context.cache.get(), &context.geometry);
  Require(context.groups->LoadAll(), "groups");
  context.inode_store = std::make_unique<InodeStore>(&context);
  if (!read_write) return;
  context.blocks = std::make_unique<BlockAllocator>(&context.geometry, context.groups.get(), &context.planted);
  context.inodes = std::make_unique<InodeAllocator>(&context.geometry, context.groups.get(), &context.planted);
  JournalOptions journal_options;
  journal_options.log_map = JournalBlocks(*context.inode_store, journal_inode);
  journal_options.commit_interval_ms = 0;
  journal_options.on_durable = [this](TransactionId, const std::vector<BlockRange>& freed) {
    context.blocks->Release(freed);
  };
  context.journal =
      Take(Journal::Open(context.queue.get(), context.cache.get(), context.geometry, journal_options), "journal");
  Require(context.journal->Recover(nullptr).status(), "recovery");
  Require(context.journal->StartWriting(), "journal start");
}

VolumeRig::~VolumeRig() {
  if (context.journal != nullptr) context.journal->Shutdown().IgnoreError();
  context.journal.reset();
}

Handle VolumeRig::Start(uint32_t credits) {
  return Take(context.journal->Start(credits), "handle");
}

void VolumeRig::Commit() {
  const int error = context.journal->CommitBlocking(context.journal->Newest(), nullptr);
  if (error != 0) throw std::runtime_error("commit failed");
}

std::vector<uint8_t> VolumeRig::Finish() {
  Require(context.journal->Shutdown(), "shutdown");
  return device_->bytes();
}

}  // namespace elidefs::core
