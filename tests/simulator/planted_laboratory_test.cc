// Planted bugs that the laboratory finds among its ordinary cases, each within a bounded number of them; the same cases
// without the bug are those of laboratory_test.cc. Those that need a history of their own are in planted_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <string>

#include "tests/simulator/laboratory.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

// A recording with the bug, judged by an elidefs without it.
void ExpectFound(const std::string& workload, uint64_t cases, const std::function<void(core::VolumeInternals*)>& plant,
                 uint32_t oracle_every = 0) {
  if (!IsDeterministic()) GTEST_SKIP() << "only the scheduler brings the interleaving back";
  LaboratoryOptions options;
  options.most_violations = 1;
  options.oracle_every = oracle_every;
  plant(&options.internals);
  Laboratory laboratory(options);
  uint64_t number = 0;
  for (; number < cases && !laboratory.HasEnough(); ++number) {
    laboratory.RunCase(workload, Laboratory::CaseNumber(workload, number));
  }
  const LaboratoryReport report = laboratory.Report();
  ASSERT_FALSE(report.violations.empty()) << "not found: " << report.Summary();
  std::cout << "found after " << number << " cases and " << report.judged
            << " images: " << report.violations.front().substr(0, 200) << "\n";
}

TEST(planted, need_is_issued_among_sequences) {
  ExpectFound("sequences2", 300, [](core::VolumeInternals* internals) { internals->ledger.need_is_issued = true; });
}
TEST(planted, told_before_need) {
  ExpectFound("chunks", 200, [](core::VolumeInternals* internals) { internals->planted.told_before_need = true; });
}
TEST(planted, release_by_list) {
  ExpectFound("threads", 300, [](core::VolumeInternals* internals) { internals->ledger.release_by_list = true; });
}
TEST(planted, stale_issued) {
  ExpectFound("threads", 300, [](core::VolumeInternals* internals) { internals->ledger.stale_issued = true; });
}
TEST(planted, commit_without_preflush_among_sequences) {
  ExpectFound("fua", 100, [](core::VolumeInternals* internals) { internals->planted.commit_without_preflush = true; });
}
TEST(planted, elide_pre_despite_log_among_sequences) {
  ExpectFound("fua", 100, [](core::VolumeInternals* internals) { internals->planted.elide_pre_despite_log = true; });
}
TEST(planted, forget_orphan) {
  ExpectFound("random", 60, [](core::VolumeInternals* internals) { internals->planted.forget_orphan = true; });
}
// A record whose checksum is wrong is damage to e2fsck.
TEST(planted, record_may_tear) {
  ExpectFound(
      "sequences2", 300, [](core::VolumeInternals* internals) { internals->planted.record_may_tear = true; }, 4);
}
// elidefs looks at the log itself; e2fsck and the kernel go by the flag.
TEST(planted, recover_flag_not_set) {
  ExpectFound(
      "sequences2", 100, [](core::VolumeInternals* internals) { internals->planted.recover_flag_not_set = true; }, 2);
}

}  // namespace
}  // namespace elidefs::simulator
