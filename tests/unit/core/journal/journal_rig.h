// Shared by the journal tests: volumes made by mke2fs, a stack (queue, cache, journal) over any device, and the
// e2fsprogs tools as judges.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "blockio/device/test_devices.h"
#include "blockio/request_queue.h"
#include "core/cache/block_cache.h"
#include "core/journal/journal.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::core {

using test_support::CommandResult;
using test_support::RunCommand;
using test_support::TempDirectory;

// What a test knows of a freshly made volume.
struct TestVolume {
  std::vector<uint8_t> bytes;
  Geometry geometry;
  std::vector<BlockRange> log_map;
  std::vector<BlockNumber> free_blocks;  // may be overwritten at will

  // The log is in several pieces on small volumes.
  BlockNumber LogBlockNumber(uint32_t log_block) const;
  bool IsInLog(BlockNumber block) const;
  uint32_t LogLength() const;
};
// `arguments` go to mke2fs, e.g. "-b 1024 -J size=1". The same arguments are made once per process.
const TestVolume& MakeVolume(const std::string& arguments, uint64_t size_mib);
// Of an image that tools have changed since.
TestVolume Inspect(const std::string& path, uint32_t free_blocks);

// Queue, cache and journal over a borrowed device.
struct Stack {
  Stack(BlockDevice* device, const TestVolume& volume, JournalOptions options = {});
  ~Stack();
  // Recover, drop the cache, StartWriting and the flush of a mount.
  RecoveryResult Mount();
  // One transaction that fills `block` with `fill`; returns its id.
  TransactionId WriteBlocks(const std::vector<BlockNumber>& blocks, uint8_t fill);
  std::vector<uint8_t> ReadFromDevice(BlockNumber block);

  std::unique_ptr<blockio::RequestQueue> queue;
  std::unique_ptr<BlockCache> cache;
  absl::Status open_status;
  std::unique_ptr<Journal> journal;
  uint32_t block_bytes = 0;
};

// Sets needs_recovery, replays with e2fsck -E journal_only and returns the image. `output` may be null.
std::vector<uint8_t> ReplayWithE2fsck(const std::vector<uint8_t>& image, std::string* output);
// Blocks that differ, superblocks of the volume and the whole journal left out.
std::vector<BlockNumber> DifferingBlocks(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                                         const TestVolume& volume);
std::vector<uint8_t> BlockOf(const std::vector<uint8_t>& image, const TestVolume& volume, BlockNumber block);

}  // namespace elidefs::core
