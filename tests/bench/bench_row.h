// One line of a benchmark: our value beside a peer's, both from the same run, and the mark that the ratio is held to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace elidefs::bench {

struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::string peer;   // empty: the value stands alone
  double ratio = 0;   // ours / the peer's; without a peer the value again
  double mark = 0;    // 0: none
  bool below = true;  // meets: ratio <= mark; false: ratio >= mark
  bool Meets() const { return mark == 0 || (below ? ratio <= mark : ratio >= mark); }
};

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Runs `body`, which does `count` operations, and returns nanoseconds per operation.
template <typename Body>
double NanosecondsEach(uint64_t count, Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body(count);
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(count);
}

// Keeps the compiler from dropping a computation.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

struct BenchOptions {
  bool quick = false;  // a smoke test: every path once, numbers mean nothing
  uint32_t repeats() const { return quick ? 1 : 7; }
};

void QuiesceRefBench(const BenchOptions& options, std::vector<BenchRow>* rows);
void TagSetBench(const BenchOptions& options, std::vector<BenchRow>* rows);
void NullDeviceBench(const BenchOptions& options, std::vector<BenchRow>* rows);

}  // namespace elidefs::bench
