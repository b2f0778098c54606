// ThreadNumber: a small number that no other living thread has, for tables with a place per thread. A number is given
// back when its thread exits; whatever the thread wrote before happens before what the next owner does.
#pragma once

#include <cstdint>

namespace elidefs {

inline constexpr uint32_t kMaxThreadNumbers = 128;
// For threads beyond kMaxThreadNumbers at a time, and for a thread whose end has begun.
inline constexpr uint32_t kNoThreadNumber = UINT32_MAX;

namespace internal {
inline constexpr uint32_t kThreadNumberUnknown = UINT32_MAX - 1;
extern constinit thread_local uint32_t thread_number;
uint32_t AssignThreadNumber();
}  // namespace internal

// Below kMaxThreadNumbers, or kNoThreadNumber. Two loads and a comparison after the thread's first call.
inline uint32_t ThreadNumber() {
  const uint32_t number = internal::thread_number;
  return number == internal::kThreadNumberUnknown ? internal::AssignThreadNumber() : number;
}

}  // namespace elidefs
