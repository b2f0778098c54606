// What follows a record: POST, release of waiters in order, hand-over to the checkpoint, and the abort.
#include <utility>

#include "base/error.h"
#include "core/journal/journal_impl.h"

namespace elidefs::core {

CommitOutcome Journal::Impl::AskForCommit(CommitWaiter* waiter) {
  MutexLock lock(mutex);
  waiter->error = 0;
  waiter->next = nullptr;
  if (waiter->transaction <= durable) return CommitOutcome::kDurable;
  Transaction* target = nullptr;
  CommitOutcome outcome = CommitOutcome::kJoined;
  if (running != nullptr && waiter->transaction >= running->id && (running->closing || !running->empty())) {
    target = running.get();
    if (!aborted && !target->closing && requested < target->id) {
      requested = target->id;
      outcome = CommitOutcome::kStarted;
      commit_cond.NotifyAll();
    }
  } else if (committing != nullptr && waiter->transaction >= committing->id) {
    target = committing.get();
  } else {
    // A transaction that changed nothing is as durable as the one before it.
    for (const auto& transaction : recorded) {
      target = transaction.get();
      if (transaction->id >= waiter->transaction) break;
    }
  }
  if (target == nullptr) return CommitOutcome::kDurable;
  if (aborted) return CommitOutcome::kAborted;
  waiter->next = target->waiters;
  target->waiters = waiter;
  return outcome;
}

void Journal::Impl::RunWaiters(CommitWaiter* waiters, int error) {
  while (waiters != nullptr) {
    CommitWaiter* waiter = waiters;
    waiters = waiter->next;  // `done` may free it
    waiter->next = nullptr;
    waiter->error = error;
    waiter->done(waiter);
  }
}

void Journal::Impl::IssuePost() {
  blockio::Ticket need = blockio::kNoNeed;
  PostWaiter* post = nullptr;
  {
    MutexLock lock(mutex);
    for (const auto& transaction : recorded) {
      if (transaction->post_asked) continue;
      transaction->post_asked = true;
      need = std::max(need, transaction->record_need);
    }
    if (need == blockio::kNoNeed || aborted) return;
    post = new PostWaiter;
    post->impl = this;
    ++posts_in_flight;
  }
  post->waiter.need = need;
  post->waiter.context = post;
  post->waiter.done = &PostDone;
  const blockio::AwaitOutcome outcome = queue->ledger().Await(&post->waiter);
  {
    MutexLock lock(mutex);
    switch (outcome) {
      case blockio::AwaitOutcome::kElided:
        ++stats.commit_post_elided;
        break;
      case blockio::AwaitOutcome::kJoined:
        ++stats.commit_post_joined;
        break;
      case blockio::AwaitOutcome::kIssued:
        ++stats.commit_post_issued;
        break;
      case blockio::AwaitOutcome::kFailed:
        break;
    }
  }
  if (outcome == blockio::AwaitOutcome::kElided || outcome == blockio::AwaitOutcome::kFailed) {
    if (outcome == blockio::AwaitOutcome::kFailed) post->waiter.error = EIO;
    PostDone(&post->waiter);
  }
}

void Journal::Impl::PostDone(blockio::FlushWaiter* waiter) {
  auto* post = static_cast<PostWaiter*>(waiter->context);
  Impl* impl = post->impl;
  if (waiter->error != 0) {
    impl->Abort(ErrnoError(EIO, "the flush of a commit record failed"));
  } else {
    impl->AdvanceDurable(waiter->need);
  }
  delete post;
  MutexLock lock(impl->mutex);
  --impl->posts_in_flight;
  impl->progress_cond.NotifyAll();
}

void Journal::Impl::AdvanceDurable(blockio::Ticket proved) {
  const blockio::Ticket flushed = std::max(proved, queue->ledger().durable());
  CommitWaiter* released = nullptr;
  CommitWaiter** end = &released;
  {
    MutexLock lock(mutex);
    if (aborted) return;
    while (!recorded.empty() && recorded.front()->record_need <= flushed) {
      std::unique_ptr<Transaction> transaction = std::move(recorded.front());
      recorded.pop_front();
      durable = transaction->id;
      *end = transaction->waiters;
      while (*end != nullptr) end = &(*end)->next;
      transaction->waiters = nullptr;
      MoveToLog(std::move(transaction));
    }
    WakeAll();
  }
  RunWaiters(released, 0);
}

InLogTransaction* Journal::Impl::FindInLog(TransactionId id) {
  if (in_log.empty() || id < in_log.front().id || id - in_log.front().id >= in_log.size()) return nullptr;
  return &in_log[id - in_log.front().id];
}

void Journal::Impl::DropCheckpointEntry(BlockNumber block) {
  const auto entry = checkpoint.find(block);
  if (entry == checkpoint.end()) return;
  if (InLogTransaction* owner = FindInLog(entry->second.id); owner != nullptr) --owner->remaining;
  checkpoint.erase(entry);
}

void Journal::Impl::MoveToLog(std::unique_ptr<Transaction> transaction) {
  InLogTransaction in_log_transaction;
  in_log_transaction.id = transaction->id;
  in_log_transaction.log_start = transaction->log_start;
  in_log_transaction.remaining = transaction->snapshot.size();
  in_log_transaction.blocks.reserve(transaction->snapshot.size());
  for (SnapshotBlock& copy : transaction->snapshot) {
    // The older copy need not go home any more: recovery from here on finds the newer one.
    DropCheckpointEntry(copy.block);
    in_log_transaction.blocks.push_back(copy.block);
    checkpoint[copy.block] = {transaction->id, CheckpointEntry::State::kWaiting, std::move(copy.bytes),
                              std::move(copy.buffer)};
  }
  for (const BlockNumber block : transaction->revoked) DropCheckpointEntry(block);
  in_log.push_back(std::move(in_log_transaction));
  deliveries.push_back(
      {transaction->id, std::move(transaction->released), {transaction->revoked.begin(), transaction->revoked.end()}});
}

void Journal::Impl::WakeCheckpoint() {
  checkpoint_wanted = true;
  checkpoint_cond.NotifyAll();
}

void Journal::Impl::WakeAll() {
  start_cond.NotifyAll();
  commit_cond.NotifyAll();
  WakeCheckpoint();
  progress_cond.NotifyAll();
}

void Journal::Impl::Abort(const absl::Status& reason) {
  CommitWaiter* released = nullptr;
  CommitWaiter** end = &released;
  {
    MutexLock lock(mutex);
    if (aborted) return;
    aborted = true;
    abort_reason = reason;
    const auto take = [&](Transaction* transaction) {
      if (transaction == nullptr) return;
      *end = std::exchange(transaction->waiters, nullptr);
      while (*end != nullptr) end = &(*end)->next;
    };
    for (const auto& transaction : recorded) take(transaction.get());
    take(committing.get());
    take(running.get());
    WakeAll();
  }
  options.logger.Error(std::string(reason.message()));
  // First the reason, then the waiters: who gets EIO may ask for it at once.
  if (options.on_abort) options.on_abort(reason);
  RunWaiters(released, EIO);
}

}  // namespace elidefs::core
