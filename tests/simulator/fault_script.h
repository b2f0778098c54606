// FaultScript: which requests of a recording fail and how, drawn from a number. Threads: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "blockio/device/test_devices.h"

namespace elidefs::simulator {

enum class FaultKind : uint8_t {
  kWriteError,       // one write fails, nothing of it is stored
  kTornWrite,        // one write fails with its first sectors stored
  kFlushError,       // one flush fails; it may have done its work all the same
  kFlushLosesCache,  // one flush fails, and no later one covers what it should have
  kReadError,        // some reads fail
  kLatency,          // requests are held back at random, so that others overtake them
  kStorm,            // every third of a run of requests of any kind fails
  kGone,             // from one request on all fail
  kNoSpace,          // allocations are refused for a while
};
inline constexpr uint64_t kFaultKinds = 9;
const char* NameOf(FaultKind kind);

class FaultScript {
 public:
  // The same kind and seed fail the same requests, counted from Arm() on.
  FaultScript(FaultKind kind, uint64_t seed);
  // Fails `count` of those that the kind may fail, from number `first` on.
  FaultScript(FaultKind kind, uint64_t first, uint64_t count);
  FaultScript(const FaultScript&) = delete;
  FaultScript& operator=(const FaultScript&) = delete;

  // For FaultDevice.
  blockio::FaultDevice::Verdict Decide(const DeviceRequest& request);
  // For PlantedBugs::out_of_space.
  bool RefuseAllocation();
  // `device`: whose cache a flush may lose. Faults begin now.
  void Arm(blockio::VolatileCacheDevice* device);

  void Disarm() { device_.store(nullptr); }

  FaultKind kind() const { return kind_; }
  bool OnlyFlushesFail() const { return kind_ == FaultKind::kFlushError || kind_ == FaultKind::kFlushLosesCache; }
  // The device loses nothing and reports no error.
  bool IsHarmless() const { return kind_ == FaultKind::kLatency || kind_ == FaultKind::kNoSpace; }
  // How many requests and allocations failed or were held back.
  uint64_t injected() const { return injected_.load(); }

 private:
  using Verdict = blockio::FaultDevice::Verdict;
  Verdict DecideFlush();
  // Counts one that the script may fail; true if it is one of the `count_` from `first_` on.
  bool IsItsTurn();
  Verdict Fail(Verdict verdict);
  uint64_t Draw(uint64_t number) const;

  const FaultKind kind_;
  const uint64_t seed_;
  const uint64_t first_;
  const uint64_t count_;
  std::atomic<blockio::VolatileCacheDevice*> device_{nullptr};  // set: armed
  std::atomic<uint64_t> seen_{0};
  std::atomic<uint64_t> injected_{0};
};

}  // namespace elidefs::simulator
