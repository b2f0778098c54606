#include "core/durability/syncer.h"

#include <cerrno>
#include <memory>
#include <utility>

#include "core/durability/decision.h"

namespace elidefs::core {

// One sync on its way. Kept alive by whichever callback comes next.
struct Syncer::Operation {
  InodeRef inode;
  bool data_only = false;
  Callback callback;
  Syncer* syncer = nullptr;
  CommitWaiter commit;
  blockio::FlushWaiter flush;
  bool committed = false;           // this sync waited for a commit
  std::shared_ptr<Operation> self;  // while a waiter is queued
};

Syncer::Syncer(VolumeContext* context, DataPath* data_path, DirtyTimes* dirty_times, uint32_t group_wait_ms)
    : context_(context), data_path_(data_path), dirty_times_(dirty_times), group_wait_ms_(group_wait_ms) {}

void Syncer::Sync(InodeRef inode, bool data_only, Callback callback) {
  auto operation = std::make_shared<Operation>();
  operation->inode = std::move(inode);
  operation->data_only = data_only;
  operation->callback = std::move(callback);
  operation->syncer = this;
  // Step 0: what was acknowledged before this call is at the device and in a transaction.
  data_path_->AfterAcceptedWrites(operation->inode, [this, operation] { Decide(operation); });
}

void Syncer::Decide(const std::shared_ptr<Operation>& operation) {
  if (context_->journal == nullptr) return Finish(operation, 0);
  Inode& inode = *operation->inode;
  const bool times = !operation->data_only && dirty_times_->Contains(inode.number);
  blockio::FlushLedger& ledger = context_->queue->ledger();
  SyncView view;
  view.transaction = (operation->data_only ? inode.datasync_tid : inode.sync_tid).load(std::memory_order_acquire);
  view.durable_transaction = context_->journal->IsDurable(view.transaction) ? view.transaction : 0;
  view.need = inode.need.load(std::memory_order_acquire);
  view.durable = ledger.durable();
  view.issued = ledger.issued();
  view.leaf_failed = ledger.failed();
  SyncAction action = DecideSync(view);
  if (action == SyncAction::kElide && times) action = SyncAction::kCommit;
  switch (action) {
    case SyncAction::kElide:
      counters_.elided.fetch_add(1, std::memory_order_relaxed);
      return Finish(operation, 0);
    case SyncAction::kFail:
      return Finish(operation, EIO);
    case SyncAction::kJoin:
      return FlushStep(operation);
    case SyncAction::kCommit:
    case SyncAction::kFlush:
      break;
  }
  // One flush for all who wrote before this sync: their data first reaches the device, for a bounded time.
  data_path_->AfterVolumeWrites(group_wait_ms_, [this, operation, times] {
    if (!times) return CommitThenFlush(operation);
    context_->workers->Schedule([this, operation] {
      if (!dirty_times_->WriteAll().ok()) return Finish(operation, EIO);
      CommitThenFlush(operation);
    });
  });
}

void Syncer::CommitThenFlush(const std::shared_ptr<Operation>& operation) {
  Inode& inode = *operation->inode;
  const TransactionId transaction =
      (operation->data_only ? inode.datasync_tid : inode.sync_tid).load(std::memory_order_acquire);
  operation->commit.transaction = transaction;
  operation->commit.context = operation.get();
  operation->commit.done = [](CommitWaiter* waiter) {
    auto* self = static_cast<Operation*>(waiter->context);
    const std::shared_ptr<Operation> held = std::move(self->self);
    if (waiter->error != 0) return held->syncer->Finish(held, EIO);
    held->committed = true;
    held->syncer->FlushStep(held);
  };
  operation->self = operation;
  switch (context_->journal->Commit(&operation->commit)) {
    case CommitOutcome::kDurable:
      operation->self.reset();
      return FlushStep(operation);
    case CommitOutcome::kAborted:
      operation->self.reset();
      return Finish(operation, EIO);
    case CommitOutcome::kJoined:
      counters_.joined_commit.fetch_add(1, std::memory_order_relaxed);
      return;
    case CommitOutcome::kStarted:
      counters_.started_commit.fetch_add(1, std::memory_order_relaxed);
      return;
  }
}

// Step 2, always: a write may have completed after the commit's preflush was dispatched.
void Syncer::FlushStep(const std::shared_ptr<Operation>& operation) {
  if (context_->planted.skip_sync_step_2 && operation->committed) return Finish(operation, 0);
  operation->flush.need = operation->inode->need.load(std::memory_order_acquire);
  operation->flush.context = operation.get();
  operation->flush.done = [](blockio::FlushWaiter* waiter) {
    auto* self = static_cast<Operation*>(waiter->context);
    const std::shared_ptr<Operation> held = std::move(self->self);
    held->syncer->Finish(held, waiter->error);
  };
  operation->self = operation;
  switch (context_->queue->ledger().Await(&operation->flush)) {
    case blockio::AwaitOutcome::kElided:
      operation->self.reset();
      if (!operation->committed) counters_.elided.fetch_add(1, std::memory_order_relaxed);
      return Finish(operation, 0);
    case blockio::AwaitOutcome::kFailed:
      operation->self.reset();
      return Finish(operation, EIO);
    case blockio::AwaitOutcome::kJoined:
      counters_.joined_flush.fetch_add(1, std::memory_order_relaxed);
      return;
    case blockio::AwaitOutcome::kIssued:
      counters_.issued_flush.fetch_add(1, std::memory_order_relaxed);
      return;
  }
}

void Syncer::Finish(const std::shared_ptr<Operation>& operation, int error) {
  if (error != 0) {
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    // A failed flush means that cached changes are lost: the volume goes read-only (DESIGN, "Errors").
    if (context_->queue->ledger().failed() && context_->journal != nullptr) {
      context_->journal->Abort(absl::DataLossError("a device flush failed; run e2fsck after replacing the device"));
    }
  }
  std::exchange(operation->callback, nullptr)(error);
}

}  // namespace elidefs::core
