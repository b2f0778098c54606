// FlushQueue: when a hardware queue may send a flush, and for whom (after Linux block/blk-flush.c).
//
// A bio that asks for ordering runs through PREFLUSH -> DATA -> POSTFLUSH, less what the device makes unnecessary.
// Bios that wait for a flush sit on `pending`; at dispatch `pending` becomes `running`, so one flush serves them all:
//   C1  one flush is in flight per flush queue; what arrives meanwhile waits on `pending` for the next one.
//   C2  a flush is deferred while a bio of this queue executes the DATA step of its sequence: its POSTFLUSH can share
//   it. C3  C2 is overridden for a bio that has waited longer than a bound.
// A pure state machine: no I/O, no locks, no tags (a bio waits for a flush without one, and the one flush request is
// preallocated, so flushing cannot deadlock on tags). Guarded by the hardware queue's mutex.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "blockio/bio.h"

namespace elidefs::blockio {

enum FlushStep : uint8_t {
  kStepPreflush = 1U << 0U,
  kStepData = 1U << 1U,
  kStepPostflush = 1U << 2U,
};

// First in, first out; linked through Bio::next.
struct BioList {
  Bio* head = nullptr;
  Bio* tail = nullptr;

  bool empty() const { return head == nullptr; }
  void PushBack(Bio* bio) {
    bio->next = nullptr;
    (tail == nullptr ? head : tail->next) = bio;
    tail = bio;
  }
  Bio* PopFront() {
    Bio* bio = head;
    head = bio->next;
    if (head == nullptr) tail = nullptr;
    bio->next = nullptr;
    return bio;
  }
};

class FlushQueue {
 public:
  using Clock = SteadyClock;

  explicit FlushQueue(Clock::duration starvation_bound) : starvation_bound_(starvation_bound) {}

  // The steps `bio` needs on such a device; 0 for a flush where there is nothing to flush (E9). `volatile_cache`: as of
  // now (E8), whatever the capabilities said when the device was opened.
  static uint8_t StepsFor(const Bio& bio, const DeviceCapabilities& capabilities, bool volatile_cache);
  // Whether the bio's requests carry the device's own FUA bit (E6).
  static bool UsesNativeFua(const Bio& bio, const DeviceCapabilities& capabilities);

  // `bio` waits for a flush that is dispatched after this call.
  void AddBio(Bio* bio, Clock::time_point now);
  // The ledger asked for a flush; it has no bio of its own.
  void AddLedgerRequest(Clock::time_point now);
  void DataStarted() { ++data_in_flight_; }
  void DataEnded() { --data_in_flight_; }

  bool HasPending() const { return !pending_.bios.empty() || pending_.ledger_requests > 0; }
  // C1, C2, C3.
  bool MayDispatch(Clock::time_point now) const;
  // Closes the list of waiters (E1): pending becomes running.
  void Dispatch();
  struct Finished {
    BioList bios;
    uint32_t ledger_requests = 0;
  };
  // The flush in flight completed: what waited for it.
  Finished Complete();

  // Odd: in flight, even: completed.
  uint64_t flush_index() const { return flush_index_; }

 private:
  void NotePending(Clock::time_point now);

  const Clock::duration starvation_bound_;
  Finished pending_;
  Finished running_;
  Clock::time_point pending_since_;  // of the oldest on `pending_`
  uint64_t flush_index_ = 0;
  uint32_t data_in_flight_ = 0;  // bios that execute the DATA step
};

}  // namespace elidefs::blockio
