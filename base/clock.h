// Time, in a form that the simulator can replace (see mutex.h).
#pragma once

#include <chrono>
#include <ctime>

namespace elidefs {

// For deadlines and ages. Meets the requirements of a clock in <chrono>.
struct SteadyClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SteadyClock>;
  static constexpr bool is_steady = true;
  static time_point now();
};

// The time of day, for what is written to disk.
timespec TimeOfDay();
// The same to the kernel's tick: cheaper, for every read and write.
timespec CoarseTimeOfDay();

void SleepFor(std::chrono::nanoseconds duration);

}  // namespace elidefs
