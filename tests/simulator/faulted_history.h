// FaultedHistory: one thread of calls on a device that fails, as an application goes on that heeds what it is told.
//
// A call that fails is taken back from the model: a change of names has not happened, a sync promises nothing, a write
// may or may not be there. The file of a failed write or sync is written anew as a whole before it is synced again.
// Calls that make no sense any more are left out. When the volume has become read-only, every file is synced through a
// description opened before and one opened after, twice each; what then returns 0 counts as a promise like any other.
//
// What it finds wrong by itself (the error table of docs/flush_elision.md): a sync that fails and succeeds when it is
// repeated, a stable open file whose sync fails, a change that a read-only volume accepts. Lost bytes are for the
// judge. Threads: one; several histories may run at once on a recording.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/simulator/rig.h"

namespace elidefs::simulator {

class FaultedHistory {
 public:
  // Borrowed. `writes_succeed`: only flushes fail. A failed sync then fails for good; of a write that failed a
  // description is told once.
  FaultedHistory(Recording* recording, uint32_t thread, bool writes_succeed);

  void Run(const std::vector<Operation>& wanted);

  // The calls as the model is to see them.
  const std::vector<Operation>& executed() const { return executed_; }
  uint64_t failed_calls() const { return failed_calls_; }
  // Empty, or what was wrong.
  const std::string& problem() const { return problem_; }

 private:
  bool IsPossible(const Operation& operation) const;
  // False when the volume does not accept changes any more.
  bool Execute(const Operation& operation);
  absl::Status Call(const Operation& operation);
  void Accept(const Operation& operation);
  void RewriteFailed();
  void SyncAfterTheFailure();
  void SyncTwice(NodeId file, File* description, bool opened_before);
  bool IsReadOnly() const;
  void Problem(const std::string& text);

  Recording* const recording_;
  const uint32_t thread_;
  const bool writes_succeed_;
  TreeModel tree_;
  std::vector<Operation> executed_;
  std::set<NodeId> doubtful_;  // a write or sync failed, and the file was not written anew
  std::set<NodeId> dirty_;     // changed since its last acknowledged sync
  uint64_t next_pattern_ = 0;
  uint64_t failed_calls_ = 0;
  std::string problem_;
};

}  // namespace elidefs::simulator
