#include "tests/simulator/faulted_history.h"

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace elidefs::simulator {
namespace {

// Patterns of what is written anew, apart from those of the generator.
constexpr uint64_t kFirstRewritePattern = uint64_t{1} << 60U;

bool IsSync(const Operation& operation) {
  return operation.kind == OperationKind::kSync || operation.kind == OperationKind::kDataSync;
}
bool IsContent(const Operation& operation) {
  return operation.kind == OperationKind::kWrite || operation.kind == OperationKind::kTruncate;
}
// What stands for a call that changed and promised nothing.
Operation Nothing() {
  return {.kind = OperationKind::kClose};
}

}  // namespace

FaultedHistory::FaultedHistory(Recording* recording, uint32_t thread, bool writes_succeed)
    : recording_(recording),
      thread_(thread),
      writes_succeed_(writes_succeed),
      next_pattern_(kFirstRewritePattern + (uint64_t{thread} << 40U)) {}

void FaultedHistory::Problem(const std::string& text) {
  if (problem_.empty()) problem_ = absl::StrCat("thread ", thread_, " after ", executed_.size(), " calls: ", text);
}

bool FaultedHistory::IsReadOnly() const {
  return recording_->volume().read_only();
}

bool FaultedHistory::IsPossible(const Operation& operation) const {
  if (operation.kind == OperationKind::kClose) {
    return recording_->runner(thread_).inodes().contains(operation.node);
  }
  // What a sync of a doubtful file would promise is nothing that a model can say.
  return tree_.IsLegal(operation) && !(IsSync(operation) && doubtful_.contains(operation.node));
}

absl::Status FaultedHistory::Call(const Operation& operation) {
  absl::Status status = recording_->runner(thread_).RunOne(executed_.size(), operation);
  if (!status.ok()) ++failed_calls_;
  return status;
}

void FaultedHistory::Accept(const Operation& operation) {
  executed_.push_back(operation);
  tree_.Apply(operation);
  if (IsSync(operation)) {
    dirty_.erase(operation.node);
  } else if (IsContent(operation) || operation.kind == OperationKind::kCreate) {
    dirty_.insert(operation.node);
  }
}

bool FaultedHistory::Execute(const Operation& operation) {
  if (Call(operation).ok()) {
    Accept(operation);
    return true;
  }
  if (IsSync(operation) || IsContent(operation)) doubtful_.insert(operation.node);
  if (IsReadOnly()) {
    // A change may be part of what the failed commit had written.
    executed_.push_back(IsSync(operation) ? Nothing() : operation);
    return false;
  }
  if (IsContent(operation)) {
    Operation failed = operation;
    failed.failed = true;
    Accept(failed);
  } else {
    executed_.push_back(Nothing());
  }
  recording_->device().Mark(MarkNumber(thread_, executed_.size() - 1, true));
  return true;
}

void FaultedHistory::RewriteFailed() {
  const std::set<NodeId> files = doubtful_;
  for (const NodeId file : files) {
    const auto found = tree_.nodes().find(file);
    if (found == tree_.nodes().end() || found->second.kind != NodeKind::kFile) continue;
    const Operation anew{.kind = OperationKind::kWrite,
                         .node = file,
                         .length_bytes = found->second.content.size(),
                         .pattern = next_pattern_++};
    if (anew.length_bytes == 0) continue;
    doubtful_.erase(file);  // comes back if this fails as well
    if (!Execute(anew)) return;
  }
}

void FaultedHistory::Run(const std::vector<Operation>& wanted) {
  for (const Operation& operation : wanted) {
    if (!problem_.empty() || IsReadOnly()) break;
    if (!IsPossible(operation)) continue;
    if (!Execute(operation)) break;
    if (!doubtful_.empty()) RewriteFailed();
  }
  if (IsReadOnly()) SyncAfterTheFailure();
}

void FaultedHistory::SyncAfterTheFailure() {
  // The call that met the failure has begun and stays so: nothing that is acknowledged from here on may cover it.
  Volume& volume = recording_->volume();
  Runner& runner = recording_->runner(thread_);
  for (const auto& [node, entry] : tree_.nodes()) {
    if (entry.kind != NodeKind::kFile || doubtful_.contains(node)) continue;
    if (runner.IsOpen(node)) {
      const absl::StatusOr<File*> before = runner.Open(node);
      if (before.ok()) SyncTwice(node, *before, true);
    }
    const absl::StatusOr<std::unique_ptr<File>> after = volume.OpenFile(runner.inode(node), kOpenRead);
    if (after.ok()) SyncTwice(node, after->get(), false);
  }
  const absl::StatusOr<Entry> made =
      volume.MakeNode(runner.inode(kBaseNode), "too late", S_IFREG | 0644, 0, Credentials{});
  const int error = made.ok() ? 0 : StatusToErrno(made.status());
  if (error != EROFS && error != EIO) {
    Problem(absl::StrCat("a file is created on a volume that is read-only: ", made.status().ToString()));
  }
}

void FaultedHistory::SyncTwice(NodeId file, File* description, bool opened_before) {
  recording_->device().Mark(MarkNumber(thread_, executed_.size(), false));
  const absl::Status first = description->Sync(true);
  const std::string name =
      absl::StrCat("fdatasync of file ", file, ", opened ", opened_before ? "before" : "after", " the failure: ");
  if (first.ok()) {
    // Somebody was told before that the file is damaged: then this promises nothing.
    const bool promises = !doubtful_.contains(file);
    if (!promises && writes_succeed_) Problem(absl::StrCat(name, "succeeds after another one has failed"));
    executed_.push_back(promises ? Operation{.kind = OperationKind::kDataSync, .node = file} : Nothing());
    recording_->device().Mark(MarkNumber(thread_, executed_.size() - 1, true));
    return;
  }
  executed_.push_back(Nothing());
  doubtful_.insert(file);
  if (StatusToErrno(first) != EIO) Problem(absl::StrCat(name, first.ToString()));
  // One that had been evicted starts with what any evicted one needed (E11).
  if (opened_before && !dirty_.contains(file)) Problem(absl::StrCat(name, "was stable, now ", first.ToString()));
  if (description->Sync(true).ok() && writes_succeed_) Problem(absl::StrCat(name, "fails, and succeeds when repeated"));
}

}  // namespace elidefs::simulator
