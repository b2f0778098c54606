// Timestamps of inodes: 32 signed bits of seconds, and with the extra field 2 more epoch bits and 30 bits of
// nanoseconds. Source: Documentation/filesystems/ext4, "Inode Timestamps". Range with the extra field: 1901-12-13 to
// 2446-05-10.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/inode/inode.h"

namespace elidefs::core {

struct EncodedTime {
  uint32_t seconds_low = 0;
  uint32_t extra = 0;  // ns << 2 | epoch
};

inline constexpr int64_t kMinSeconds = std::numeric_limits<int32_t>::min();
inline constexpr int64_t kMaxSecondsPlain = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxSecondsExtra = kMaxSecondsPlain + (int64_t{3} << 32);
inline constexpr uint32_t kMaxNanoseconds = 999'999'999;

// Seconds out of range become the nearest that can be stored. `with_extra` false: the extra field does not exist.
inline EncodedTime EncodeTime(Timestamp time, bool with_extra) {
  const int64_t seconds = std::clamp(time.seconds, kMinSeconds, with_extra ? kMaxSecondsExtra : kMaxSecondsPlain);
  EncodedTime encoded;
  encoded.seconds_low = static_cast<uint32_t>(static_cast<uint64_t>(seconds) & 0xFFFFFFFFU);
  if (!with_extra) return encoded;
  // The low word is signed: the epoch counts how many times 2^32 lies between it and the real value.
  const int64_t rest = seconds - static_cast<int32_t>(encoded.seconds_low);
  const auto epoch = static_cast<uint32_t>(rest >> 32) & 3U;
  encoded.extra = std::min(time.nanoseconds, kMaxNanoseconds) << 2U | epoch;
  return encoded;
}

// `extra` 0 when the field does not exist. Impossible nanoseconds become the largest possible.
inline Timestamp DecodeTime(uint32_t seconds_low, uint32_t extra) {
  Timestamp time;
  time.seconds = static_cast<int32_t>(seconds_low) + (static_cast<int64_t>(extra & 3U) << 32);
  time.nanoseconds = std::min(extra >> 2U, kMaxNanoseconds);
  return time;
}

}  // namespace elidefs::core
