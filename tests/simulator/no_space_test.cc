// A volume that is full at each single allocation of a load in turn: the call may fail, nothing else may change. What
// was acknowledged is there, and e2fsck has nothing to say.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "tests/simulator/fault_script.h"
#include "tests/simulator/faulted_history.h"
#include "tests/simulator/judge.h"
#include "tests/simulator/rig.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

class NoSpaceTest : public testing::TestWithParam<bool> {};

TEST_P(NoSpaceTest, AtEveryAllocation) {
  const uint64_t step = IsDeterministic() ? 1 : 20;
  const auto image = std::make_shared<const blockio::BaseImage>(MakeSmallImage(1024));
  const std::vector<Operation> operations = GenerateWorkload({.seed = 5, .operations = 80});
  uint64_t failed_calls = 0;
  uint64_t number = 0;
  while (true) {
    const auto script = std::make_shared<FaultScript>(FaultKind::kNoSpace, number, GetParam() ? UINT64_MAX : 1);
    std::unique_ptr<Recording> recording;
    absl::Status status;
    RunSimulated({.seed = number}, [&] {
      RigOptions options;
      options.shared_image = image;
      options.faults = [](const DeviceRequest&) { return blockio::FaultDevice::Verdict{}; };
      options.internals.planted.out_of_space = [script] { return script->RefuseAllocation(); };
      recording = std::make_unique<Recording>(std::move(options));
      status = recording->Start(1);
      if (!status.ok()) return;
      script->Arm(&recording->device());
      FaultedHistory history(recording.get(), 0, /*writes_succeed=*/false);
      history.Run(operations);
      script->Disarm();
      EXPECT_EQ(history.problem(), "") << "allocation " << number;
      EXPECT_FALSE(recording->volume().read_only()) << "allocation " << number;
      failed_calls += history.failed_calls();
      recording->SetHistories({history.executed()});
      status = recording->Finish();
    });
    ASSERT_TRUE(status.ok()) << "allocation " << number << ": " << status;
    if (script->injected() == 0) break;
    JudgeOptions judge;
    judge.random_per_cut = 0;
    judge.all_steps_every = 0;
    judge.first_event = recording->device().event_count();
    const JudgeReport report = Judge(*recording, judge);
    ASSERT_TRUE(report.violations.empty()) << "allocation " << number << ": " << report.Summary();
    number += step;
  }
  std::cout << number << " allocations refused, " << failed_calls << " calls failed\n";
  EXPECT_GT(number, 60U) << "hardly anything was allocated: the test proves nothing";
  // One refusal alone is met by trying again: there is space.
  EXPECT_EQ(failed_calls > 0, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Refusals, NoSpaceTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) { return info.param ? "FromThereOn" : "Once"; });

}  // namespace
}  // namespace elidefs::simulator
