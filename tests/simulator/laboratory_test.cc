// The laboratory at work: at least 100,000 distinct crash images in all, none of which may violate anything. A
// violation names its case; `simulator_soak --case NAME:NUMBER --seed 1` repeats it.
#include "tests/simulator/laboratory.h"

#include <gtest/gtest.h>

#include <iostream>
#include <utility>

#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

struct Part {
  const char* workload;
  uint64_t cases;         // the first so many, in the order of the stride
  uint64_t least_images;  // distinct ones; together more than 100,000 (checked below)
  uint32_t oracle_every;  // together more than 3,000
};

constexpr Part kParts[] = {
    {"sequences1", 42, 700, 10}, {"sequences2", 1764, 36000, 30}, {"sequences3", 1500, 36000, 60},
    {"random", 60, 16000, 40},   {"threads", 40, 14000, 40},      {"chunks", 40, 8000, 40},
    {"wrap", 2, 3000, 40},       {"fua", 20, 5000, 40},           {"faults", 180, 30000, 0},
    {"overlaps", 60, 5000, 0},   {"leaves", 20, 5000, 40},
};

constexpr uint64_t LeastImages() {
  uint64_t sum = 0;
  for (const Part& part : kParts) sum += part.least_images;
  return sum;
}
static_assert(LeastImages() >= 100000);

class LaboratoryTest : public testing::TestWithParam<Part> {};

TEST_P(LaboratoryTest, NothingAcknowledgedIsLost) {
  const Part& part = GetParam();
  LaboratoryOptions options;
  // Under a sanitizer a tenth as fast, and other judges add nothing to what it looks for.
  options.oracle_every = IsDeterministic() ? part.oracle_every : 0;
  options.nested_every = 400;
  const uint64_t cases = IsDeterministic() ? part.cases : part.cases / 40 + 1;
  Laboratory laboratory(options);
  for (uint64_t number = 0; number < cases && !laboratory.HasEnough(); ++number) {
    laboratory.RunCase(part.workload, Laboratory::CaseNumber(part.workload, number));
  }
  const LaboratoryReport report = laboratory.Report();
  std::cout << part.workload << ": " << report.Summary() << "\n";
  EXPECT_TRUE(report.violations.empty());
  if (IsDeterministic()) EXPECT_GE(report.images, part.least_images);
}
INSTANTIATE_TEST_SUITE_P(Workloads, LaboratoryTest, testing::ValuesIn(kParts),
                         [](const testing::TestParamInfo<Part>& info) { return std::string(info.param.workload); });

TEST(LaboratorySeeds, RepeatACase) {
  if (!IsDeterministic()) GTEST_SKIP() << "real threads under a sanitizer";
  for (const char* workload : {"threads", "chunks", "sequences2"}) {
    std::string summaries[2];
    for (std::string& summary : summaries) {
      Laboratory laboratory({.seed = 7});
      summary = laboratory.RunCase(workload, 1234).Summary();
    }
    EXPECT_EQ(summaries[0], summaries[1]) << workload;
  }
}

}  // namespace
}  // namespace elidefs::simulator
