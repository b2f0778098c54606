#include "tests/simulator/fault_script.h"

#include <algorithm>
#include <cerrno>

#include "base/mix.h"
#include "tests/simulator/model.h"

namespace elidefs::simulator {
namespace {

constexpr uint64_t kMostDelayUs = 20000;
constexpr uint64_t kMostFlushDelayUs = 2000;

// The first failure comes among so many requests of its kind: about as many as a recording has.
uint64_t Spread(FaultKind kind) {
  switch (kind) {
    case FaultKind::kFlushError:
    case FaultKind::kFlushLosesCache:
      return 12;
    case FaultKind::kReadError:
      return 6;
    case FaultKind::kNoSpace:
      return 30;
    default:
      return 45;
  }
}

uint64_t CountOf(FaultKind kind, uint64_t draw) {
  switch (kind) {
    case FaultKind::kWriteError:
    case FaultKind::kTornWrite:
    case FaultKind::kFlushError:
    case FaultKind::kFlushLosesCache:
      return 1;
    case FaultKind::kReadError:
      return 1 + draw % 4;
    case FaultKind::kStorm:
      return 5 + draw % 40;
    case FaultKind::kNoSpace:
      return 1 + draw % 20;
    case FaultKind::kLatency:
    case FaultKind::kGone:
      break;
  }
  return UINT64_MAX;
}

}  // namespace

const char* NameOf(FaultKind kind) {
  constexpr const char* kNames[kFaultKinds] = {"write error", "torn write", "flush error", "flush error, cache lost",
                                               "read error",  "latency",    "error storm", "device gone",
                                               "no space"};
  return kNames[static_cast<size_t>(kind)];
}

FaultScript::FaultScript(FaultKind kind, uint64_t seed)
    : kind_(kind), seed_(seed), first_(MixBits(seed) % Spread(kind)), count_(CountOf(kind, MixBits(seed ^ 77))) {}

FaultScript::FaultScript(FaultKind kind, uint64_t first, uint64_t count)
    : kind_(kind), seed_(0), first_(first), count_(count) {}

uint64_t FaultScript::Draw(uint64_t number) const {
  return MixBits(seed_ ^ MixBits(number));
}

void FaultScript::Arm(blockio::VolatileCacheDevice* device) {
  device_.store(device);
}

bool FaultScript::IsItsTurn() {
  const uint64_t number = seen_.fetch_add(1);
  return number >= first_ && number - first_ < count_;
}

FaultScript::Verdict FaultScript::Fail(Verdict verdict) {
  injected_.fetch_add(1);
  return verdict;
}

bool FaultScript::RefuseAllocation() {
  if (kind_ != FaultKind::kNoSpace || device_.load() == nullptr || !IsItsTurn()) return false;
  injected_.fetch_add(1);
  return true;
}

// Flushes take their time, so that those of several queues overlap in every order, the failing one among them.
FaultScript::Verdict FaultScript::DecideFlush() {
  const uint64_t draw = Draw(100 + seen_.load());
  Verdict verdict{.delay_us = draw % 2 == 0 ? 0 : draw / 2 % kMostFlushDelayUs};
  if (!IsItsTurn()) return verdict;
  verdict.error = EIO;
  if (kind_ == FaultKind::kFlushLosesCache) {
    device_.load()->LoseCache();
  } else {
    verdict.apply_first = Draw(2) % 2 == 0;
  }
  return Fail(verdict);
}

FaultScript::Verdict FaultScript::Decide(const DeviceRequest& request) {
  if (device_.load() == nullptr) return {};
  const bool is_flush = request.operation == elidefs::Operation::kFlush;
  const bool is_read = request.operation == elidefs::Operation::kRead;
  switch (kind_) {
    case FaultKind::kWriteError:
      return is_flush || is_read || !IsItsTurn() ? Verdict{} : Fail({.error = EIO});
    case FaultKind::kTornWrite: {
      if (request.operation != elidefs::Operation::kWrite || !IsItsTurn()) return {};
      const uint64_t sectors = request.length_bytes / kSectorBytes;
      return Fail({.error = EIO, .torn_bytes = static_cast<uint32_t>(Draw(1) % (sectors + 1) * kSectorBytes)});
    }
    case FaultKind::kFlushError:
    case FaultKind::kFlushLosesCache:
      return is_flush ? DecideFlush() : Verdict{};
    case FaultKind::kReadError:
      return !is_read || !IsItsTurn() ? Verdict{} : Fail({.error = EIO});
    case FaultKind::kLatency: {
      const uint64_t draw = Draw(seen_.fetch_add(1));
      return draw % 4 != 0 ? Verdict{} : Fail({.delay_us = 1 + draw / 4 % kMostDelayUs});
    }
    case FaultKind::kStorm:
      return !IsItsTurn() || Draw(seen_.load()) % 3 != 0 ? Verdict{} : Fail({.error = EIO});
    case FaultKind::kGone:
      return !IsItsTurn() ? Verdict{} : Fail({.error = EIO});
    case FaultKind::kNoSpace:
      break;
  }
  return {};
}

}  // namespace elidefs::simulator
