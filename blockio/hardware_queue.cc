#include "blockio/hardware_queue.h"

#include <algorithm>
#include <utility>

namespace elidefs::blockio {
namespace {

// Discards and write-zeroes move no data, so max_transfer_bytes does not bound them; this keeps a length in 31 bits.
constexpr uint64_t kMaxDatalessBytes = 1ULL << 30U;

bool ChangesCache(Operation operation) {
  return operation == Operation::kWrite || operation == Operation::kDiscard || operation == Operation::kWriteZeroes;
}

}  // namespace

std::unique_ptr<HardwareQueue> HardwareQueue::Create(std::unique_ptr<DeviceQueue> device_queue,
                                                     const DeviceCapabilities* capabilities, FlushLedger* ledger,
                                                     QuiesceRef* users, uint32_t depth,
                                                     FlushQueue::Clock::duration starvation_bound) {
  std::unique_ptr<HardwareQueue> queue(
      new HardwareQueue(std::move(device_queue), capabilities, ledger, users, starvation_bound));
  MutexLock lock(queue->mutex_);
  queue->tags_ = TagSet::Create(queue.get(), depth);
  if (queue->tags_ == nullptr) return nullptr;
  return queue;
}

HardwareQueue::HardwareQueue(std::unique_ptr<DeviceQueue> device_queue, const DeviceCapabilities* capabilities,
                             FlushLedger* ledger, QuiesceRef* users, FlushQueue::Clock::duration starvation_bound)
    : device_queue_(std::move(device_queue)),
      capabilities_(*capabilities),
      ledger_(ledger),
      users_(users),
      flush_queue_(starvation_bound) {
  flush_request_.queue = this;
  flush_request_.operation = Operation::kFlush;
  flush_request_.complete = [](DeviceRequest* request, int error) {
    static_cast<FlushRequest*>(request)->queue->CompleteFlush(error);
  };
}

HardwareQueue::~HardwareQueue() {
  Quiesce();
  device_queue_.reset();  // its completion thread may be on its way out of our callbacks
}

void HardwareQueue::Submit(Bio* bio) {
  bio->hardware_queue = this;
  bio->steps = FlushQueue::StepsFor(*bio, capabilities_, ledger_->has_volatile_cache());
  bio->sequenced = (bio->steps & (kStepPreflush | kStepPostflush)) != 0;
  mutex_.Lock();
  if (bio->operation == Operation::kRead) {
    ++counters_.reads;
    counters_.read_bytes += bio->length_bytes;
  } else if (bio->operation == Operation::kDiscard) {
    ++counters_.discards;
  } else if (bio->operation != Operation::kFlush) {
    ++counters_.writes;
    counters_.written_bytes += bio->length_bytes;
  }
  const bool ended = StartStep(bio);
  if (!ended) Run();
  mutex_.Unlock();
  if (ended) {
    End(bio);
    users_->Leave();
  }
}

void HardwareQueue::RequestFlush() {
  MutexLock lock(mutex_);
  flush_queue_.AddLedgerRequest(FlushQueue::Clock::now());
  Run();
}

bool HardwareQueue::StartStep(Bio* bio) {
  if ((bio->steps & kStepPreflush) != 0) {
    flush_queue_.AddBio(bio, FlushQueue::Clock::now());
  } else if ((bio->steps & kStepData) != 0) {
    if (bio->sequenced) flush_queue_.DataStarted();
    waiting_.PushBack(bio);
  } else if ((bio->steps & kStepPostflush) != 0) {
    flush_queue_.AddBio(bio, FlushQueue::Clock::now());
  } else {
    if (bio->error != 0) ++counters_.errors;
    return true;
  }
  return false;
}

void HardwareQueue::Run() {
  if (dispatching_) return;
  dispatching_ = true;
  while (quiesce_depth_ == 0) {
    if (flush_queue_.HasPending() && flush_queue_.MayDispatch(FlushQueue::Clock::now())) {
      flush_queue_.Dispatch();
      ++counters_.queue.flushes_submitted;
      mutex_.Unlock();
      // E1: the list of waiters is closed, the ticket is taken, then the device sees the request.
      flush_request_.ticket = ledger_->Dispatched();
      device_queue_->Submit(&flush_request_);
      mutex_.Lock();
      continue;
    }
    if (waiting_.empty()) break;
    Request* request = tags_->Acquire();
    if (request == nullptr) break;  // the completion that frees a tag runs this again
    PrepareChild(request);
    ++counters_.queue.dispatched;
    mutex_.Unlock();
    device_queue_->Submit(request);
    mutex_.Lock();
  }
  dispatching_ = false;
  if (quiesce_depth_ > 0) idle_.NotifyAll();
}

void HardwareQueue::PrepareChild(Request* request) {
  Bio* bio = waiting_.head;
  request->bio = bio;
  request->operation = bio->operation;
  request->fua = FlushQueue::UsesNativeFua(*bio, capabilities_);
  request->offset_bytes = bio->offset_bytes + bio->issued_bytes;
  request->complete = [](DeviceRequest* done, int error) {
    auto* child = static_cast<Request*>(done);
    child->queue->CompleteChild(child, error);
  };
  std::fill(std::begin(request->device_private), std::end(request->device_private), 0);
  const uint64_t remaining = bio->length_bytes - bio->issued_bytes;
  if (bio->segment_count == 0) {
    request->segments = nullptr;
    request->segment_count = 0;
    request->length_bytes = std::min(remaining, kMaxDatalessBytes);
  } else if (bio->issued_bytes == 0 && remaining <= capabilities_.max_transfer_bytes &&
             bio->segment_count <= capabilities_.max_segments) {
    request->segments = bio->segments;
    request->segment_count = bio->segment_count;
    request->length_bytes = remaining;
  } else {
    CutSegments(bio, request);
  }
  bio->issued_bytes += request->length_bytes;
  ++bio->remaining_children;
  if (bio->issued_bytes == bio->length_bytes) waiting_.PopFront();
}

void HardwareQueue::CutSegments(Bio* bio, Request* request) {
  const uint64_t block = capabilities_.logical_block_bytes;
  uint64_t wanted = std::min<uint64_t>(capabilities_.max_transfer_bytes, bio->length_bytes - bio->issued_bytes);
  wanted -= wanted % block;
  std::vector<iovec>& pieces = request->own_segments;
  pieces.clear();
  uint64_t total = 0;
  uint32_t segment = bio->next_segment;
  uint64_t offset = bio->next_segment_offset;
  while (total < wanted && pieces.size() < capabilities_.max_segments) {
    const iovec& whole = bio->segments[segment];
    const uint64_t length = std::min<uint64_t>(whole.iov_len - offset, wanted - total);
    pieces.push_back(iovec{static_cast<char*>(whole.iov_base) + offset, length});
    total += length;
    offset = 0;
    ++segment;
  }
  // The limit of segments may cut inside a logical block. RequestQueue::Create made sure that a whole block is left.
  for (uint64_t excess = total % block; excess > 0;) {
    const uint64_t cut = std::min<uint64_t>(excess, pieces.back().iov_len);
    pieces.back().iov_len -= cut;
    if (pieces.back().iov_len == 0) pieces.pop_back();
    excess -= cut;
    total -= cut;
  }
  uint64_t advance = total;
  while (advance > 0) {
    const uint64_t left = bio->segments[bio->next_segment].iov_len - bio->next_segment_offset;
    if (advance < left) {
      bio->next_segment_offset += advance;
      break;
    }
    advance -= left;
    ++bio->next_segment;
    bio->next_segment_offset = 0;
  }
  request->segments = pieces.data();
  request->segment_count = static_cast<uint32_t>(pieces.size());
  request->length_bytes = total;
}

void HardwareQueue::CompleteChild(Request* request, int error) {
  mutex_.Lock();
  Bio* bio = request->bio;
  // E2: after this very completion was acquired and before anyone is told; a later child's value is never smaller.
  if (ChangesCache(request->operation) && !request->fua) bio->need = ledger_->NeedOfCompletedWrite();
  tags_->Release(request);
  ++counters_.queue.completed;
  if (error != 0 && bio->error == 0) bio->error = error;
  --bio->remaining_children;
  bool ended = false;
  if (bio->remaining_children == 0 && bio->issued_bytes == bio->length_bytes) {
    if (bio->sequenced) flush_queue_.DataEnded();
    bio->steps =
        bio->error == 0 ? static_cast<uint8_t>(bio->steps & ~kStepData) : 0;  // a failed step ends the sequence
    ended = StartStep(bio);
  }
  if (!ended) {
    // Under the same hold of the lock: another child may end the bio, and with it the last reference, any time.
    Run();
    mutex_.Unlock();
    return;
  }
  mutex_.Unlock();
  End(bio);
  mutex_.Lock();
  Run();
  mutex_.Unlock();
  users_->Leave();
}

void HardwareQueue::CompleteFlush(int error) {
  users_->Get();  // the bios below may give back all theirs
  {
    CompletionScope scope(users_);
    const Ticket ticket = flush_request_.ticket;
    FlushQueue::Finished finished;
    {
      MutexLock lock(mutex_);
      finished = flush_queue_.Complete();
      if (error != 0) ++counters_.errors;
    }
    ledger_->Completed(ticket, error);
    while (!finished.bios.empty()) {
      Bio* bio = finished.bios.PopFront();
      bio->retirement = FlushWaiter{.need = ticket,
                                    .done =
                                        [](FlushWaiter* waiter) {
                                          auto* waiting_bio = static_cast<Bio*>(waiter->context);
                                          waiting_bio->hardware_queue->FlushStepDone(waiting_bio, waiter->error);
                                        },
                                    .context = bio};
      // E3: the device's answer counts only once every earlier flush, on any queue, has succeeded too.
      ledger_->AwaitRetirement(&bio->retirement);
    }
    for (uint32_t i = 0; i < finished.ledger_requests; ++i) users_->Leave();
    MutexLock lock(mutex_);
    Run();
  }
  users_->Leave();
}

void HardwareQueue::FlushStepDone(Bio* bio, int error) {
  mutex_.Lock();
  if (error != 0) {
    bio->error = error;
    bio->steps = 0;  // no DATA after a failed PREFLUSH
  } else if ((bio->steps & kStepPreflush) != 0) {
    bio->steps = static_cast<uint8_t>(bio->steps & ~kStepPreflush);
  } else {
    bio->steps = 0;
    bio->need = kNoNeed;  // E6: the flush behind the data was dispatched after the need was read
  }
  const bool ended = StartStep(bio);
  if (!ended) Run();
  mutex_.Unlock();
  if (!ended) return;
  End(bio);
  users_->Leave();
}

void HardwareQueue::End(Bio* bio) {
  CompletionScope scope(users_);
  bio->end_io(bio);
}

void HardwareQueue::Quiesce() {
  MutexLock lock(mutex_);
  ++quiesce_depth_;
  while (dispatching_) idle_.Wait(mutex_);
}

void HardwareQueue::Unquiesce() {
  MutexLock lock(mutex_);
  --quiesce_depth_;
  Run();
}

HardwareQueueCounters HardwareQueue::Counters() const {
  MutexLock lock(mutex_);
  HardwareQueueCounters counters = counters_;
  counters.queue.depth = tags_->depth();
  counters.queue.in_flight = tags_->in_use();
  counters.queue.flush_index = flush_queue_.flush_index();
  return counters;
}

}  // namespace elidefs::blockio
