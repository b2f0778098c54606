#include "blockio/flush_queue.h"

namespace elidefs::blockio {

uint8_t FlushQueue::StepsFor(const Bio& bio, const DeviceCapabilities& capabilities, bool volatile_cache) {
  const bool flush_only = bio.operation == Operation::kFlush;
  if (!volatile_cache) return flush_only ? 0 : kStepData;  // E9: the flags ask for nothing
  if (flush_only) return kStepPreflush;
  uint8_t steps = kStepData;
  if (bio.operation == Operation::kRead) return steps;
  if ((bio.flags & kBioPreflush) != 0) steps |= kStepPreflush;
  if ((bio.flags & kBioFua) != 0 && !UsesNativeFua(bio, capabilities)) steps |= kStepPostflush;
  return steps;
}

bool FlushQueue::UsesNativeFua(const Bio& bio, const DeviceCapabilities& capabilities) {
  // Only plain writes: no device promises FUA for discard or for write-zeroes by deallocation.
  return bio.operation == Operation::kWrite && (bio.flags & kBioFua) != 0 && capabilities.volatile_write_cache &&
         capabilities.native_fua;
}

void FlushQueue::NotePending(Clock::time_point now) {
  if (!HasPending()) pending_since_ = now;
}

void FlushQueue::AddBio(Bio* bio, Clock::time_point now) {
  NotePending(now);
  pending_.bios.PushBack(bio);
}

void FlushQueue::AddLedgerRequest(Clock::time_point now) {
  NotePending(now);
  ++pending_.ledger_requests;
}

bool FlushQueue::MayDispatch(Clock::time_point now) const {
  if (!HasPending()) return false;
  if ((flush_index_ & 1U) != 0) return false;        // C1
  if (data_in_flight_ == 0) return true;             // C2
  return now - pending_since_ >= starvation_bound_;  // C3
}

void FlushQueue::Dispatch() {
  running_ = pending_;
  pending_ = Finished{};
  ++flush_index_;
}

FlushQueue::Finished FlushQueue::Complete() {
  ++flush_index_;
  Finished finished = running_;
  running_ = Finished{};
  return finished;
}

}  // namespace elidefs::blockio
