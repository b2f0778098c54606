#include "base/thread_number.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

namespace elidefs {
namespace {

constinit std::array<std::atomic<uint64_t>, kMaxThreadNumbers / 64> taken_numbers{};

uint32_t TakeNumber() {
  for (size_t index = 0; index < taken_numbers.size(); ++index) {
    std::atomic<uint64_t>& word = taken_numbers[index];
    uint64_t taken = word.load(std::memory_order_relaxed);
    while (taken != UINT64_MAX) {
      const auto bit = static_cast<uint32_t>(std::countr_one(taken));
      // Acquires what the last owner released with the number.
      if (word.compare_exchange_weak(taken, taken | (1ULL << bit), std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        return static_cast<uint32_t>(index * 64) + bit;
      }
    }
  }
  return kNoThreadNumber;
}

struct NumberOwner {
  const uint32_t number = TakeNumber();
  NumberOwner() = default;
  NumberOwner(const NumberOwner&) = delete;
  NumberOwner& operator=(const NumberOwner&) = delete;
  ~NumberOwner() {
    internal::thread_number = kNoThreadNumber;  // for the destructors of thread-local objects that run after this one
    if (number == kNoThreadNumber) return;
    taken_numbers[number / 64].fetch_and(~(1ULL << (number % 64)), std::memory_order_release);
  }
};

}  // namespace

namespace internal {

constinit thread_local uint32_t thread_number = kThreadNumberUnknown;

uint32_t AssignThreadNumber() {
  thread_local const NumberOwner owner;
  thread_number = owner.number;
  return owner.number;
}

}  // namespace internal
}  // namespace elidefs
