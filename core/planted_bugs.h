// Test-only seams: each member plants one bug that the suite must catch. All off in production; set through
// core::VolumeInternals (core/volume/internals.h), never through the public options.
#pragma once

#include <functional>

namespace elidefs::core {

struct PlantedBugs {
  bool commit_without_preflush = false;  // PRE of a commit is skipped (breaks D3)
  bool skip_sync_step_2 = false;         // fdatasync returns after its commit (breaks step 2)
  bool forget_evicted_need = false;      // breaks E11
  bool skip_revoke = false;              // freed metadata is not revoked
  bool reuse_freed_early = false;        // freed blocks are free at once, not when the transaction is durable
  bool no_flush_at_mount = false;        // breaks E11
  bool elide_pre_despite_log = false;    // PRE elided though a log block needs it
  bool tail_before_checkpoint = false;   // log tail moved before the checkpoint writes are durable
  bool record_may_tear = false;          // the record's place is not cleared before it
  bool checksum_before_escape = false;   // tag checksum computed before escaping
  bool told_before_need = false;         // a write has ended for its syncs before its need is recorded (breaks E2)
  bool forget_orphan = false;            // an unlinked open file is not put on the orphan list
  bool recover_flag_not_set = false;     // needs_recovery missing after our own replay
  bool reset_sequence = false;           // journal sequence restarts after replay
  // Not a bug but a full volume: asked at every allocation of blocks or an inode, true answers it ENOSPC. Any thread.
  std::function<bool()> out_of_space;
};

}  // namespace elidefs::core
