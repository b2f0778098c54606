// usage: simulator_soak [--workload NAME]... [--seconds N | --cases N] [--seed N] [--first N] [--threads N]
//                       [--oracle-every N] [--nested-every N]
//        simulator_soak --case NAME:NUMBER [--seed N]
// Runs cases of the crash laboratory, the workloads in turn, until the time or the count is over or a case violates
// something. A seed and a case's number repeat it exactly; --first goes on where an earlier run stopped.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/simulator/laboratory.h"

namespace elidefs::simulator {
namespace {

using Clock = std::chrono::steady_clock;

struct SoakOptions {
  std::vector<std::string> workloads;
  uint64_t seconds = 0;
  uint64_t cases = 0;
  uint64_t first = 0;
  unsigned threads = std::thread::hardware_concurrency();
  std::string single;  // NAME:NUMBER
  LaboratoryOptions laboratory{.oracle_every = 500, .nested_every = 200};
};

[[noreturn]] void Usage(const std::string& problem) {
  std::cerr << "simulator_soak: " << problem << "\nworkloads:";
  for (const std::string& name : Workloads()) std::cerr << " " << name;
  std::cerr << "\nsee the head of tests/simulator/soak_main.cc\n";
  std::exit(2);
}

bool IsWorkload(const std::string& name) {
  return std::find(Workloads().begin(), Workloads().end(), name) != Workloads().end();
}

SoakOptions Parse(int argc, char** argv) {
  SoakOptions options;
  uint64_t oracle_every = options.laboratory.oracle_every;
  uint64_t nested_every = options.laboratory.nested_every;
  uint64_t threads = options.threads;
  const std::map<std::string, uint64_t*> numbers = {
      {"--seconds", &options.seconds}, {"--cases", &options.cases},       {"--seed", &options.laboratory.seed},
      {"--first", &options.first},     {"--oracle-every", &oracle_every}, {"--nested-every", &nested_every},
      {"--threads", &threads}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) Usage(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--workload") {
      if (!IsWorkload(value)) Usage("no workload " + value);
      options.workloads.push_back(value);
    } else if (name == "--case") {
      options.single = value;
    } else if (const auto found = numbers.find(name); found == numbers.end()) {
      Usage("unknown option " + name);
    } else if (!absl::SimpleAtoi(value, found->second)) {
      Usage(name + ": not a number: " + value);
    }
  }
  options.laboratory.oracle_every = static_cast<uint32_t>(oracle_every);
  options.laboratory.nested_every = static_cast<uint32_t>(nested_every);
  options.threads = static_cast<unsigned>(std::clamp<uint64_t>(threads, 1, 256));
  if (options.workloads.empty()) options.workloads = Workloads();
  if (options.single.empty() && options.seconds == 0 && options.cases == 0) options.seconds = 60;
  return options;
}

int RunSingle(const SoakOptions& options) {
  const size_t colon = options.single.find(':');
  uint64_t number = 0;
  if (colon == std::string::npos || !IsWorkload(options.single.substr(0, colon)) ||
      !absl::SimpleAtoi(options.single.substr(colon + 1), &number)) {
    Usage("not a case: " + options.single);
  }
  Laboratory laboratory(options.laboratory);
  const LaboratoryReport report = laboratory.RunCase(options.single.substr(0, colon), number);
  std::cout << report.Summary() << "\n";
  return report.violations.empty() ? 0 : 1;
}

// The case with the given number of the whole campaign: the workloads in turn. False if there are no cases left.
bool RunNumber(Laboratory& laboratory, const SoakOptions& options, uint64_t number) {
  const std::string& workload = options.workloads[number % options.workloads.size()];
  const uint64_t place = number / options.workloads.size();
  const std::optional<uint64_t> count = Laboratory::CaseCount(workload);
  if (!count.has_value() || place < *count) {
    laboratory.RunCase(workload, Laboratory::CaseNumber(workload, place));
    return true;
  }
  return std::any_of(options.workloads.begin(), options.workloads.end(), [place](const std::string& other) {
    return place < Laboratory::CaseCount(other).value_or(UINT64_MAX);
  });
}

int RunCampaign(const SoakOptions& options) {
  Laboratory laboratory(options.laboratory);
  std::atomic<uint64_t> next{options.first};
  std::atomic<bool> stop{false};
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i) {
    threads.emplace_back([&] {
      while (!stop.load() && !laboratory.HasEnough()) {
        const uint64_t number = next.fetch_add(1);
        if (options.cases != 0 && number >= options.first + options.cases) break;
        if (!RunNumber(laboratory, options, number)) break;
      }
      stop.store(true);
    });
  }
  double reported = 0;
  constexpr double kReportSeconds = 10;
  while (!stop.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (options.seconds != 0 && seconds() >= static_cast<double>(options.seconds)) stop.store(true);
    if (seconds() - reported < kReportSeconds) continue;
    reported = seconds();
    const LaboratoryReport report = laboratory.Report();
    std::cout << absl::StrFormat("%6.0f s: next --first %d, %d distinct images, %d judged, %.0f a second\n", reported,
                                 next.load(), report.images, report.judged,
                                 static_cast<double>(report.judged) / reported)
              << std::flush;
  }
  for (std::thread& thread : threads) thread.join();
  const LaboratoryReport report = laboratory.Report();
  std::cout << report.Summary() << "\n"
            << absl::StrFormat("%.1f s, %d threads, %.0f images a second; goes on with --seed %d --first %d\n",
                               seconds(), options.threads, static_cast<double>(report.judged) / seconds(),
                               options.laboratory.seed, next.load());
  return report.violations.empty() ? 0 : 1;
}

}  // namespace
}  // namespace elidefs::simulator

int main(int argc, char** argv) {
  const auto options = elidefs::simulator::Parse(argc, argv);
  return options.single.empty() ? elidefs::simulator::RunCampaign(options) : elidefs::simulator::RunSingle(options);
}
