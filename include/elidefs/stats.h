// A snapshot of what a volume did about durability.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elidefs {

struct VolumeStats {
  // Sync calls by result. fsync and fdatasync together; directories included.
  struct Syncs {
    uint64_t fdatasync_calls = 0, fsync_calls = 0, directory_calls = 0, o_sync_writes = 0;
    uint64_t elided = 0;          // nothing to commit, nothing to flush
    uint64_t joined_flush = 0;    // waited for a flush that somebody else caused
    uint64_t issued_flush = 0;    // caused a flush
    uint64_t joined_commit = 0;   // waited for a commit under way
    uint64_t started_commit = 0;  // caused a commit
    uint64_t failed = 0;
  } syncs;

  // The leaf's flush ledger.
  struct Flushes {
    uint64_t requested = 0, issued = 0, elided = 0, joined = 0, failed = 0;
    uint64_t durable_ticket = 0;
    bool device_has_volatile_cache = false, native_fua = false, leaf_failed = false;
  } flushes;

  struct Commits {
    uint64_t commits = 0;
    uint64_t pre_elided = 0, pre_joined = 0, pre_issued = 0;
    uint64_t post_elided = 0, post_joined = 0, post_issued = 0, post_fua = 0;
    uint64_t logged_blocks = 0, revoked_blocks = 0, checkpointed_blocks = 0;
    uint32_t log_blocks = 0, log_blocks_used = 0;
    uint32_t running_transaction = 0, durable_transaction = 0;  // as in the log: 32 bits, may wrap
  } commits;

  struct Queue {
    uint32_t depth = 0, in_flight = 0;
    uint64_t dispatched = 0, completed = 0, flushes_submitted = 0;
    uint64_t flush_index = 0;  // odd: a flush is in flight
  };
  std::vector<Queue> queues;

  uint64_t read_bytes = 0, written_bytes = 0, device_errors = 0;
  uint64_t cached_inodes = 0, write_behind_bytes_now = 0;
  bool read_only = false;
  std::string read_only_reason;  // empty while writable
};

}  // namespace elidefs
