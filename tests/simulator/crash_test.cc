// The power is cut at every event of the device during mixed loads. ELIDEFS_CRASH_OPS and ELIDEFS_CRASH_SEED change the
// load; a failure prints the command that repeats it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulator/judge.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/rig.h"

namespace elidefs::simulator {
namespace {

constexpr uint64_t kDefaultSeed = 20240613;

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : fallback;
}

struct Load {
  uint32_t threads = 1;
  uint32_t block_bytes = 1024;
  blockio::VolatileCacheDevice::Options device;
  uint32_t commit_interval_ms = 3600 * 1000;
  size_t inode_cache_limit = 16384;
};

class CrashTest : public testing::Test {
 protected:
  // Runs the load, judges every cut, and checks that without a cut the result is exact.
  void RunLoad(const Load& load, JudgeOptions judge) {
    const uint64_t seed = FromEnvironment("ELIDEFS_CRASH_SEED", kDefaultSeed);
    const size_t operations = FromEnvironment("ELIDEFS_CRASH_OPS", 200) / load.threads;
    SCOPED_TRACE(absl::StrCat("repeat with: ELIDEFS_CRASH_OPS=", operations * load.threads,
                              " ELIDEFS_CRASH_SEED=", seed, " simulator_tests --gtest_filter=CrashTest.",
                              testing::UnitTest::GetInstance()->current_test_info()->name()));
    RigOptions options;
    options.image = MakeSmallImage(load.block_bytes);
    options.device = load.device;
    options.volume.commit_interval_ms = load.commit_interval_ms;
    options.volume.hardware_queues = load.device.max_queues;
    options.volume.worker_threads = load.threads;
    options.internals.inode_cache_limit = load.inode_cache_limit;
    Recording recording(std::move(options));
    ASSERT_TRUE(recording.Start(load.threads).ok());
    std::vector<std::vector<Operation>> histories;
    for (uint32_t thread = 0; thread < load.threads; ++thread) {
      WorkloadOptions workload;
      workload.seed = seed + thread;
      workload.operations = operations;
      workload.most_total_bytes /= load.threads;
      histories.push_back(GenerateWorkload(workload));
    }
    const absl::Status run = recording.RunAll(std::move(histories));
    ASSERT_TRUE(run.ok()) << run;
    for (uint32_t thread = 0; thread < load.threads; ++thread) {
      const absl::StatusOr<ObservedTree> tree = ObserveVolume(&recording.volume(), Recording::Folder(thread));
      ASSERT_TRUE(tree.ok()) << tree.status();
      EXPECT_EQ(recording.histories()[thread].ExplainFinal(*tree), "") << "without any cut";
    }
    const absl::Status finished = recording.Finish();
    ASSERT_TRUE(finished.ok()) << finished;
    judge.seed = seed;
    const JudgeReport report = Judge(recording, judge);
    std::cout << recording.device().event_count() << " events, " << report.Summary() << "\n";
    EXPECT_TRUE(report.violations.empty()) << report.Summary();
  }
};

TEST_F(CrashTest, OneThread) {
  RunLoad({}, {.keep_all = true, .random_per_cut = 3});
}

TEST_F(CrashTest, OneThreadLargeBlocks) {
  Load load;
  load.block_bytes = 4096;
  RunLoad(load, {.all_steps_every = 50});
}

TEST_F(CrashTest, NativeFua) {
  Load load;
  load.device.native_fua = true;
  RunLoad(load, {.all_steps_every = 50});
}

// Writes complete late and out of order on two hardware queues, and transactions are also committed by age.
TEST_F(CrashTest, ThreadsAndReordering) {
  Load load;
  load.threads = 3;
  load.device.max_queues = 2;
  load.device.reorder_seed = 7;
  load.commit_interval_ms = 20;
  RunLoad(load, {.all_steps_every = 50});
}

// Inodes leave memory between a write and its sync.
TEST_F(CrashTest, SmallInodeCache) {
  Load load;
  load.inode_cache_limit = 2;
  RunLoad(load, {.all_steps_every = 50});
}

}  // namespace
}  // namespace elidefs::simulator
