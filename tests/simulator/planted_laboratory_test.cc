// Planted bugs that the laboratory finds among its ordinary cases, each within a bounded number of them; the same cases
// without the bug are those of laboratory_test.cc. Those that need a history of their own are in planted_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <string>

#include "tests/simulator/fault_script.h"
#include "tests/simulator/laboratory.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

struct Where {
  std::string workload;
  uint64_t cases = 0;  // at most
  uint64_t first = 0;
  uint64_t step = 1;
  uint32_t oracle_every = 0;
};
// Flushes that fail with the cache lost, three threads on two queues.
constexpr uint64_t kLosingFlushes = kFaultKinds + static_cast<uint64_t>(FaultKind::kFlushLosesCache);

// A recording with the bug, judged by an elidefs without it.
void ExpectFound(const Where& where, const std::function<void(core::VolumeInternals*)>& plant,
                 const blockio::StackedDeviceOptions& stacked = {}) {
  if (!IsDeterministic()) GTEST_SKIP() << "only the scheduler brings the interleaving back";
  LaboratoryOptions options;
  options.most_violations = 1;
  options.oracle_every = where.oracle_every;
  plant(&options.internals);
  options.stacked = stacked;
  Laboratory laboratory(options);
  uint64_t tried = 0;
  for (; tried < where.cases && !laboratory.HasEnough(); ++tried) {
    laboratory.RunCase(where.workload, Laboratory::CaseNumber(where.workload, where.first + tried * where.step));
  }
  const LaboratoryReport report = laboratory.Report();
  ASSERT_FALSE(report.violations.empty()) << "not found: " << report.Summary();
  std::cout << "found after " << tried << " cases and " << report.judged
            << " images: " << report.violations.front().substr(0, 200) << "\n";
}

TEST(planted, need_is_issued_among_sequences) {
  ExpectFound({"sequences2", 300}, [](core::VolumeInternals* internals) { internals->ledger.need_is_issued = true; });
}
TEST(planted, told_before_need) {
  ExpectFound({"chunks", 200}, [](core::VolumeInternals* internals) { internals->planted.told_before_need = true; });
}
TEST(planted, release_by_list) {
  ExpectFound({"overlaps", 400}, [](core::VolumeInternals* internals) { internals->ledger.release_by_list = true; });
}
TEST(planted, stale_issued) {
  ExpectFound({"threads", 300}, [](core::VolumeInternals* internals) { internals->ledger.stale_issued = true; });
}
TEST(planted, commit_without_preflush_among_sequences) {
  ExpectFound({"fua", 100},
              [](core::VolumeInternals* internals) { internals->planted.commit_without_preflush = true; });
}
TEST(planted, elide_pre_despite_log_among_sequences) {
  ExpectFound({"fua", 100}, [](core::VolumeInternals* internals) { internals->planted.elide_pre_despite_log = true; });
}
TEST(planted, forget_orphan) {
  ExpectFound({"random", 60}, [](core::VolumeInternals* internals) { internals->planted.forget_orphan = true; });
}
// What a failed flush must not do, with others in flight on other queues.
TEST(planted, durable_on_failure_under_faults) {
  ExpectFound({.workload = "faults", .cases = 40, .first = kLosingFlushes, .step = 2 * kFaultKinds},
              [](core::VolumeInternals* internals) { internals->ledger.durable_on_failure = true; });
}
TEST(planted, clear_on_failure) {
  ExpectFound({.workload = "faults", .cases = 400, .first = kLosingFlushes, .step = 2 * kFaultKinds},
              [](core::VolumeInternals* internals) { internals->ledger.clear_on_failure = true; });
}
TEST(planted, retire_out_of_order) {
  ExpectFound({"overlaps", 400},
              [](core::VolumeInternals* internals) { internals->ledger.retire_out_of_order = true; });
}
TEST(planted, ignore_later_flushes) {
  ExpectFound({"overlaps", 400},
              [](core::VolumeInternals* internals) { internals->ledger.ignore_later_flushes = true; });
}
// Stacked devices: a commit's preflush and every other flush on one leaf only, and a flush that failed there.
TEST(planted, flush_of_one_leaf_only) {
  ExpectFound({"leaves", 200}, [](core::VolumeInternals*) {}, {.flush_first_leaf_only = true});
}
TEST(planted, drop_child_error) {
  // Three threads on two leaves.
  ExpectFound({.workload = "faults", .cases = 120, .first = kLosingFlushes + 2 * kFaultKinds, .step = 4 * kFaultKinds},
              [](core::VolumeInternals*) {}, {.drop_child_error = true});
}
// A record whose checksum is wrong is damage to e2fsck.
TEST(planted, record_may_tear) {
  ExpectFound({.workload = "sequences2", .cases = 300, .oracle_every = 4},
              [](core::VolumeInternals* internals) { internals->planted.record_may_tear = true; });
}
// elidefs looks at the log itself; e2fsck and the kernel go by the flag.
TEST(planted, recover_flag_not_set) {
  ExpectFound({.workload = "sequences2", .cases = 100, .oracle_every = 2},
              [](core::VolumeInternals* internals) { internals->planted.recover_flag_not_set = true; });
}

}  // namespace
}  // namespace elidefs::simulator
