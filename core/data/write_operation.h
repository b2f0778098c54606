// WriteOperation: one accepted write on its way to the device and into a transaction. Internal to core/data.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "blockio/bio.h"
#include "core/data/buffer_pool.h"
#include "core/data/data_path.h"
#include "core/inode/inode.h"

namespace elidefs::core {

// A run of blocks of the write that is contiguous on the device.
struct WriteSegment {
  enum class Kind : uint8_t {
    kOverwrite,  // mapped and written: the data may go there at once
    kFresh,      // a hole: blocks are reserved, the extent is inserted after the data completed
    kUnwritten,  // mapped but unwritten: converted after the data completed
  };
  Kind kind = Kind::kOverwrite;
  LogicalBlock logical = 0;
  BlockNumber physical = 0;
  uint32_t count = 0;
};

struct DataBio {
  blockio::Bio bio;
  iovec segment = {};
};

struct WriteOperation {
  InodeRef inode;
  uint64_t offset_bytes = 0;
  size_t length_bytes = 0;
  DataPath::WriteOptions options;
  uint32_t retries = 0;              // after ENOSPC, when freed blocks waited for their commit
  uint32_t fresh_blocks = 0;         // counted in Inode::pending_blocks while admitted
  DataPath::WriteCallback callback;  // set while not acknowledged

  // Copy of the caller's bytes, until the block image is built (append, or a write that had to wait).
  std::vector<uint8_t> raw;
  // Image of the blocks covered: the caller's bytes with whatever stands around them in the first and last block.
  BufferPool::Bytes image;
  LogicalBlock first_block = 0;
  uint32_t block_count = 0;
  std::vector<WriteSegment> segments;
  uint64_t promised_blocks = 0;
  uint64_t size_before_bytes = 0;  // of the file, at acceptance: what lies behind it on disk is not content
  bool read_head = false, read_tail = false;
  std::atomic<bool> needs_finish{false};  // changes mapping or size on disk
  bool acknowledged = false;
  bool ready = false;  // guarded by InodeIo::mutex: its data completed, a worker may finish it

  uint64_t sequence = 0;         // per inode
  uint64_t volume_sequence = 0;  // per volume
  DataPath* path = nullptr;
  std::shared_ptr<WriteOperation> self;  // keeps the operation while bios are in flight
  std::vector<DataBio> bios;             // fixed before the first Submit
  std::atomic<uint32_t> bios_left{0};
  std::atomic<int> error{0};
  std::atomic<blockio::Ticket> need{blockio::kNoNeed};

  uint64_t end_bytes() const { return offset_bytes + length_bytes; }
  LogicalBlock last_block() const { return first_block + block_count - 1; }
};

}  // namespace elidefs::core
