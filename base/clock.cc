#include "base/clock.h"

#include <thread>

namespace elidefs {

SteadyClock::time_point SteadyClock::now() {
  return time_point(std::chrono::steady_clock::now().time_since_epoch());
}

timespec TimeOfDay() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

timespec CoarseTimeOfDay() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

void SleepFor(std::chrono::nanoseconds duration) {
  std::this_thread::sleep_for(duration);
}

}  // namespace elidefs
