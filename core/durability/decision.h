// The decision of a sync: pure, no I/O. What fdatasync and fsync must do next, given what the inode needs and what is
// durable
// ("fdatasync(inode)" in docs/flush_elision.md).
#pragma once

#include <cstdint>

#include "blockio/ticket.h"

namespace elidefs::core {

struct SyncView {
  uint64_t transaction = 0;  // datasync_tid or sync_tid
  uint64_t durable_transaction = 0;
  blockio::Ticket need = blockio::kNoNeed;
  blockio::Ticket durable = 0;  // ledger
  blockio::Ticket issued = 0;
  bool leaf_failed = false;
};

enum class SyncAction : uint8_t {
  kElide,   // nothing to commit, nothing to flush
  kCommit,  // step 1: commit or join a commit, then decide again
  kJoin,    // step 2: a flush that covers the need was dispatched already
  kFlush,   // step 2: a flush must be asked for
  kFail,    // E4
};

inline SyncAction DecideSync(const SyncView& view) {
  const bool committed = view.durable_transaction >= view.transaction;
  const bool stable = view.durable >= view.need;
  if (view.leaf_failed && (!stable || !committed)) return SyncAction::kFail;
  if (!committed) return SyncAction::kCommit;
  if (stable) return SyncAction::kElide;
  return view.issued >= view.need ? SyncAction::kJoin : SyncAction::kFlush;
}

}  // namespace elidefs::core
