// Transaction: one atomic group of changes on its way to the log, and what remembers it until its blocks are home.
//
// Life: running (handles open and close) -> closing (no new handles; waits for the open ones) -> committing (snapshot
// taken, log blocks under way) -> recorded (its record is written) -> durable (an InLog entry and checkpoint entries).
// Threads: fields are guarded by Journal::Impl::mutex, except that between closing and durable the commit thread alone
// reads the sets without it: nobody changes them any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "blockio/ticket.h"
#include "core/cache/block_cache.h"
#include "core/geometry.h"
#include "core/journal/aligned_bytes.h"
#include "core/journal/journal.h"

namespace elidefs::core {

// One block as it was when its transaction closed.
struct SnapshotBlock {
  BlockNumber block = 0;
  BufferRef buffer;    // pinned: a read must never find an older block on the device
  AlignedBytes bytes;  // not escaped
};

struct Transaction {
  explicit Transaction(TransactionId transaction_id) : id(transaction_id) {}

  bool empty() const { return dirty.empty() && revoked.empty() && released.empty(); }
  // Credits that are spent or promised.
  uint64_t claimed() const { return dirty.size() + revoked.size() + reserved; }

  const TransactionId id;
  bool closing = false;
  uint32_t open_handles = 0;
  uint64_t reserved = 0;  // unused credits of the open handles
  SteadyClock::time_point first_change;
  absl::flat_hash_map<BlockNumber, BufferRef> dirty;
  absl::flat_hash_set<BlockNumber> revoked;
  std::vector<BlockRange> released;
  blockio::Ticket ordered_need = blockio::kNoNeed;

  std::vector<SnapshotBlock> snapshot;  // in block order
  uint32_t log_start = 0;
  uint32_t log_blocks = 0;
  blockio::Ticket record_need = blockio::kNoNeed;
  bool post_asked = false;  // a flush for the record was asked for (or none is needed)

  CommitWaiter* waiters = nullptr;
};

// A durable transaction whose blocks are not all home yet. Its part of the log is in use.
struct InLogTransaction {
  TransactionId id = 0;
  uint32_t log_start = 0;
  uint64_t remaining = 0;  // blocks whose newest durable copy is here and not durable at home
  std::vector<BlockNumber> blocks;
};

// The newest durable copy of a block that is not durable at home.
struct CheckpointEntry {
  enum class State : uint8_t { kWaiting, kWriting, kWritten };
  TransactionId id = 0;
  State state = State::kWaiting;
  AlignedBytes bytes;
  BufferRef buffer;  // until the home write has completed
};

// A completed home write whose flush is still to come.
struct HomeWrite {
  BlockNumber block = 0;
  TransactionId id = 0;
  blockio::Ticket need = blockio::kNoNeed;
};

// What the commit thread owes to JournalOptions::on_durable.
struct Delivery {
  TransactionId id = 0;
  std::vector<BlockRange> released;
  std::vector<BlockNumber> revoked;
};

}  // namespace elidefs::core
