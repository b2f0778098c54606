#include "tests/unit/core/journal/journal_rig.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "core/ondisk/super_block.h"

namespace elidefs::core {

BlockNumber TestVolume::LogBlockNumber(uint32_t log_block) const {
  for (const BlockRange& range : log_map) {
    if (log_block < range.count) return range.start + log_block;
    log_block -= range.count;
  }
  std::abort();
}

bool TestVolume::IsInLog(BlockNumber block) const {
  for (const BlockRange& range : log_map) {
    if (block >= range.start && block - range.start < range.count) return true;
  }
  return false;
}

uint32_t TestVolume::LogLength() const {
  uint32_t length = 0;
  for (const BlockRange& range : log_map) length += range.count;
  return length;
}

TestVolume Inspect(const std::string& path, uint32_t free_blocks) {
  TestVolume volume;
  volume.bytes = test_support::ReadWholeFile(path);
  SuperBlock raw;
  std::memcpy(&raw, volume.bytes.data() + kSuperBlockOffsetBytes, sizeof(raw));
  Geometry& geometry = volume.geometry;
  geometry.block_shift = 10 + raw.s_log_block_size;
  geometry.block_bytes = 1U << geometry.block_shift;
  geometry.block_count = raw.s_blocks_count_lo;
  geometry.first_data_block = raw.s_first_data_block;
  geometry.blocks_per_group = raw.s_blocks_per_group;
  geometry.feature_compat = raw.s_feature_compat;
  geometry.feature_incompat = raw.s_feature_incompat;
  geometry.feature_ro_compat = raw.s_feature_ro_compat;
  std::istringstream log_blocks(RunCommand("debugfs -R 'blocks <8>' " + path + " 2>/dev/null").output);
  BlockNumber block = 0;
  while (log_blocks >> block) {
    std::vector<BlockRange>& map = volume.log_map;
    if (!map.empty() && map.back().start + map.back().count == block) {
      ++map.back().count;
    } else {
      map.push_back({block, 1});
    }
  }
  const std::string found = RunCommand(absl::StrCat("debugfs -R 'ffb ", free_blocks, " 200' ", path)).output;
  const size_t list = found.find("found:");
  if (list != std::string::npos) {
    std::istringstream numbers(found.substr(list + std::strlen("found:")));
    while (numbers >> block) volume.free_blocks.push_back(block);
  }
  EXPECT_FALSE(volume.log_map.empty());
  EXPECT_EQ(volume.free_blocks.size(), free_blocks) << found;
  return volume;
}

const TestVolume& MakeVolume(const std::string& arguments, uint64_t size_mib) {
  static auto* made = new std::map<std::string, TestVolume>;
  const std::string key = absl::StrCat(arguments, "@", size_mib);
  const auto known = made->find(key);
  if (known != made->end()) return known->second;
  const TempDirectory directory;
  const std::string path = directory.File("volume");
  const CommandResult result =
      RunCommand(absl::StrCat("mke2fs -q -F -t ext4 ", arguments, " ", path, " ", size_mib, "M"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return made->emplace(key, Inspect(path, 400)).first->second;
}

Stack::Stack(BlockDevice* device, const TestVolume& volume, JournalOptions options)
    : block_bytes(volume.geometry.block_bytes) {
  auto created = blockio::RequestQueue::Create(device, {.hardware_queues = 2});
  EXPECT_TRUE(created.ok()) << created.status();
  queue = *std::move(created);
  cache = std::make_unique<BlockCache>(queue.get(), block_bytes, volume.geometry.block_count, 4U << 20U);
  options.log_map = volume.log_map;
  auto opened = Journal::Open(queue.get(), cache.get(), volume.geometry, std::move(options));
  open_status = opened.status();
  if (opened.ok()) journal = *std::move(opened);
}

Stack::~Stack() {
  journal.reset();
  cache.reset();
}

RecoveryResult Stack::Mount() {
  EXPECT_TRUE(open_status.ok()) << open_status;
  if (journal == nullptr) return {};
  const auto recovered = journal->Recover(nullptr);
  EXPECT_TRUE(recovered.ok()) << recovered.status();
  if (!recovered.ok()) return {};
  cache->DropAll();
  const absl::Status started = journal->StartWriting();
  EXPECT_TRUE(started.ok()) << started;
  EXPECT_EQ(queue->ledger().FlushUnconditionally(), 0);
  return *recovered;
}

TransactionId Stack::WriteBlocks(const std::vector<BlockNumber>& blocks, uint8_t fill) {
  auto handle = journal->Start(static_cast<uint32_t>(blocks.size()));
  EXPECT_TRUE(handle.ok()) << handle.status();
  if (!handle.ok()) return 0;
  for (const BlockNumber block : blocks) {
    auto buffer = cache->GetZeroed(block);
    EXPECT_TRUE(buffer.ok());
    handle->Dirty(*buffer);
    std::memset((*buffer)->data(), fill, block_bytes);
  }
  return handle->transaction();
}

std::vector<uint8_t> Stack::ReadFromDevice(BlockNumber block) {
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(4096, 65536));
  EXPECT_EQ(queue->Read(block * block_bytes, memory, block_bytes), 0);
  std::vector<uint8_t> bytes(memory, memory + block_bytes);
  std::free(memory);
  return bytes;
}

std::vector<uint8_t> ReplayWithE2fsck(const std::vector<uint8_t>& image, std::string* output) {
  const TempDirectory directory;
  const std::string path = directory.File("image");
  test_support::WriteWholeFile(path, image);
  (void)RunCommand("debugfs -w -R 'feature needs_recovery' " + path);
  const CommandResult result = RunCommand("e2fsck -fy -E journal_only " + path);
  EXPECT_LE(result.exit_code, 1) << result.output;
  if (output != nullptr) *output = result.output;
  return test_support::ReadWholeFile(path);
}

std::vector<BlockNumber> DifferingBlocks(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                                         const TestVolume& volume) {
  std::vector<BlockNumber> differing;
  const Geometry& geometry = volume.geometry;
  for (BlockNumber block = 0; block < geometry.block_count; ++block) {
    if (block == geometry.SuperBlockNumber() || volume.IsInLog(block)) continue;
    if (std::memcmp(a.data() + block * geometry.block_bytes, b.data() + block * geometry.block_bytes,
                    geometry.block_bytes) != 0) {
      differing.push_back(block);
    }
  }
  return differing;
}

std::vector<uint8_t> BlockOf(const std::vector<uint8_t>& image, const TestVolume& volume, BlockNumber block) {
  const auto start = image.begin() + static_cast<std::ptrdiff_t>(block * volume.geometry.block_bytes);
  return {start, start + volume.geometry.block_bytes};
}

}  // namespace elidefs::core
