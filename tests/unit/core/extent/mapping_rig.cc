#include "tests/unit/core/extent/mapping_rig.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/alloc/inode_allocator.h"
#include "core/extent/extent_tree.h"
#include "core/inode/inode_store.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/validate.h"

namespace elidefs::core::mapping_test {

using test_support::MustRun;
using test_support::RunCommand;

MappingRig::MappingRig(std::vector<uint8_t> image, bool read_write) {
  Open(std::move(image), read_write);
}

void MappingRig::Open(std::vector<uint8_t> image, bool read_write) {
  const uint64_t size_bytes = image.size();
  device_ = blockio::MemoryDevice::FromBytes(std::move(image), {.size_bytes = size_bytes});
  auto queue = blockio::RequestQueue::Create(device_.get(), {.hardware_queues = 1});
  ASSERT_TRUE(queue.ok()) << queue.status();
  context_.queue = *std::move(queue);
  SuperBlock super_block;
  std::memcpy(&super_block, device_->bytes().data() + kSuperBlockOffsetBytes, sizeof(super_block));
  auto geometry = ValidateSuperBlock(super_block, size_bytes, 512, read_write);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  context_.geometry = *geometry;
  context_.cache = std::make_unique<BlockCache>(context_.queue.get(), geometry->block_bytes, geometry->block_count,
                                                uint64_t{4} << 20U);
  context_.groups = std::make_unique<GroupTable>(context_.cache.get(), &context_.geometry);
  absl::Status status = context_.groups->LoadAll();
  ASSERT_TRUE(status.ok()) << status;
  context_.blocks = std::make_unique<BlockAllocator>(&context_.geometry, context_.groups.get(), &context_.planted);
  JournalOptions options;
  options.log_map = JournalBlocks();
  options.commit_interval_ms = 0;
  options.on_durable = [this](TransactionId, const std::vector<BlockRange>& ranges) {
    context_.blocks->Release(ranges);
  };
  auto journal = Journal::Open(context_.queue.get(), context_.cache.get(), context_.geometry, std::move(options));
  ASSERT_TRUE(journal.ok()) << journal.status();
  context_.journal = *std::move(journal);
  auto recovery = context_.journal->Recover(nullptr);
  ASSERT_TRUE(recovery.ok()) << recovery.status();
  status = context_.journal->StartWriting();
  ASSERT_TRUE(status.ok()) << status;
  usable_ = true;
}

MappingRig::~MappingRig() = default;

std::vector<BlockRange> MappingRig::JournalBlocks() {
  constexpr InodeNumber kJournalInode = 8;
  std::vector<BlockRange> map;
  const InodeRef inode = Load(kJournalInode);
  MutexLock lock(inode->mutex);
  const uint64_t blocks = inode->size_bytes / context_.geometry.block_bytes;
  for (uint64_t logical = 0; logical < blocks;) {
    absl::StatusOr<Mapping> mapping;
    if (inode->HasExtents()) {
      ExtentTree tree(&context_, inode.get());
      mapping = tree.Lookup(static_cast<LogicalBlock>(logical));
    } else {
      mapping = LookupBlockMap(&context_, *inode, static_cast<LogicalBlock>(logical));
    }
    if (!mapping.ok() || mapping->is_hole()) {
      ADD_FAILURE() << "journal inode: " << mapping.status();
      return {};
    }
    map.push_back({mapping->physical, mapping->length});
    logical += mapping->length;
  }
  return map;
}

InodeRef MappingRig::Load(InodeNumber number) {
  auto inode = std::make_shared<Inode>(number);
  MutexLock lock(inode->mutex);
  const auto block = context_.groups->InodeTableBlock(number, &inode->table_offset_bytes);
  if (!block.ok()) {
    ADD_FAILURE() << block.status();
    return inode;
  }
  auto buffer = context_.cache->Read(*block, nullptr);
  if (!buffer.ok()) {
    ADD_FAILURE() << buffer.status();
    return inode;
  }
  inode->table_buffer = *buffer;
  const auto& raw = *inode->table_buffer->As<RawInode>(inode->table_offset_bytes);
  EXPECT_TRUE(VerifyInode(context_.geometry, number, inode->table_buffer->data() + inode->table_offset_bytes));
  inode->mode = raw.i_mode;
  inode->links = raw.i_links_count;
  inode->flags = raw.i_flags;
  inode->generation = raw.i_generation;
  inode->size_bytes = static_cast<uint64_t>(raw.i_size_high) << 32U | raw.i_size_lo;
  inode->disk_size_bytes = inode->size_bytes;
  inode->blocks_512 = static_cast<uint64_t>(raw.i_blocks_high) << 32U | raw.i_blocks_lo;
  std::memcpy(inode->block_area.data(), raw.i_block, kInodeBlockBytes);
  return inode;
}

void MappingRig::Store(Handle& handle, Inode& inode) {
  handle.Dirty(inode.table_buffer);
  auto& raw = *inode.table_buffer->As<RawInode>(inode.table_offset_bytes);
  raw.i_links_count = static_cast<uint16_t>(inode.links);
  raw.i_flags = inode.flags;
  raw.i_size_lo = static_cast<uint32_t>(inode.size_bytes);
  raw.i_size_high = static_cast<uint32_t>(inode.size_bytes >> 32U);
  raw.i_blocks_lo = static_cast<uint32_t>(inode.blocks_512);
  raw.i_blocks_high = static_cast<uint16_t>(inode.blocks_512 >> 32U);
  std::memcpy(raw.i_block, inode.block_area.data(), kInodeBlockBytes);
  SetInodeChecksum(context_.geometry, inode.number, inode.table_buffer->data() + inode.table_offset_bytes);
}

Handle MappingRig::Start(uint32_t credits) {
  auto handle = context_.journal->Start(credits);
  // An empty handle cannot be used at all.
  if (!handle.ok()) throw std::runtime_error(handle.status().ToString());
  return *std::move(handle);
}

void MappingRig::Commit() {
  CommitOutcome outcome;
  EXPECT_EQ(context_.journal->CommitBlocking(context_.journal->Newest(), &outcome), 0);
}

std::vector<uint8_t> MappingRig::Finish() {
  const absl::Status status = context_.journal->Shutdown();
  EXPECT_TRUE(status.ok()) << status;
  std::vector<uint8_t> image = device_->bytes();
  SuperBlock super_block;
  std::memcpy(&super_block, image.data() + kSuperBlockOffsetBytes, sizeof(super_block));
  super_block.s_free_blocks_count_lo = static_cast<uint32_t>(context_.blocks->free_blocks());
  if (context_.geometry.metadata_csum()) super_block.s_checksum = SuperBlockChecksum(super_block);
  std::memcpy(image.data() + kSuperBlockOffsetBytes, &super_block, sizeof(super_block));
  return image;
}

std::vector<uint8_t> MakeMappingImage(uint32_t size_mib, const std::string& mke2fs_options,
                                      const std::string& debugfs_commands) {
  const std::vector<uint8_t> image =
      test_support::MakeImage(static_cast<uint64_t>(size_mib) << 20U, absl::StrCat("-t ext4 ", mke2fs_options));
  return debugfs_commands.empty() ? image : test_support::ChangeImage(image, debugfs_commands);
}

InodeNumber InodeOfPath(const std::vector<uint8_t>& image, const std::string& path) {
  const test_support::TempFile file(image);
  const std::string output = MustRun(absl::StrCat("debugfs -R 'stat ", path, "' ", file.path(), " 2>/dev/null"));
  InodeNumber inode = 0;
  std::istringstream words(output);
  std::string word;
  while (words >> word && word != "Inode:") {
  }
  words >> inode;
  EXPECT_NE(inode, 0U) << output;
  return inode;
}

std::string Complaints(const std::vector<uint8_t>& image) {
  const test_support::CommandResult result = test_support::CheckImage(image);
  std::istringstream lines(result.output);
  std::string complaints;
  if (result.exit_code != 0) complaints = absl::StrCat("exit code ", result.exit_code, "\n");
  for (std::string line; std::getline(lines, line);) {
    const bool summary = absl::StrContains(line, " files (") && absl::StrContains(line, " blocks");
    if (line.empty() || summary || absl::StartsWith(line, "e2fsck ") || absl::StartsWith(line, "Pass ")) continue;
    complaints += line + "\n";
  }
  return complaints;
}

std::vector<uint8_t> ChangeInKernel(const std::vector<uint8_t>& image, const std::string& mount_options,
                                    const std::function<void(const std::string& directory)>& work) {
  const test_support::TempDirectory directory;
  const std::string path = directory.File("image");
  const std::string mount_point = directory.File("mount");
  test_support::WriteWholeFile(path, image);
  std::filesystem::create_directory(mount_point);
  const std::string extra = mount_options.empty() ? "" : "," + mount_options;
  MustRun(absl::StrCat("mount -t ext4 -o loop", extra, " ", path, " ", mount_point));
  // The mount must go even when `work` throws.
  struct Unmount {
    std::string mount_point;
    ~Unmount() { EXPECT_EQ(RunCommand("umount " + mount_point).exit_code, 0); }
  };
  {
    const Unmount unmount{mount_point};
    work(mount_point);
  }
  return test_support::ReadWholeFile(path);
}

}  // namespace elidefs::core::mapping_test
