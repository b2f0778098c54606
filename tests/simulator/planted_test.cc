// Each planted bug is found by the rig, and the same load without it is judged sound. The names of the cases are those
// of the bugs: `planted.<bug>`.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "tests/simulator/judge.h"
#include "tests/simulator/rig.h"

namespace elidefs::simulator {
namespace {

using Plant = std::function<void(core::VolumeInternals*)>;
// Runs a load on a fresh recording, histories and all. Failures are the load's.
using Load = std::function<absl::Status(Recording*)>;

constexpr auto kSettle = std::chrono::milliseconds(30);  // far more than a worker needs to end a write

Operation Create(NodeId node, std::string name) {
  return {.kind = OperationKind::kCreate, .node = node, .name = std::move(name)};
}
Operation MakeFolder(NodeId node, std::string name) {
  return {.kind = OperationKind::kMakeDirectory, .node = node, .name = std::move(name)};
}
Operation Remove(OperationKind kind, std::string name) {
  return {.kind = kind, .name = std::move(name)};
}
Operation Write(NodeId node, uint64_t offset_bytes, uint64_t length_bytes, uint64_t pattern) {
  return {.kind = OperationKind::kWrite,
          .node = node,
          .offset_bytes = offset_bytes,
          .length_bytes = length_bytes,
          .pattern = pattern};
}
Operation On(OperationKind kind, NodeId node) {
  return {.kind = kind, .node = node};
}
Operation Sync(NodeId node) {
  return On(OperationKind::kSync, node);
}
Operation DataSync(NodeId node) {
  return On(OperationKind::kDataSync, node);
}
Operation Close(NodeId node) {
  return On(OperationKind::kClose, node);
}

// Without e2fsck: the model alone has to find the bug, quickly.
JudgeOptions ModelOnly() {
  JudgeOptions options;
  options.random_per_cut = 0;
  options.keep_all = false;
  options.all_steps_every = 0;
  options.check_with_e2fsck = false;
  options.most_violations = 1;
  return options;
}

JudgeReport RunAndJudge(RigOptions options, const Load& load, const JudgeOptions& judge) {
  Recording recording(std::move(options));
  absl::Status status = recording.Start(2);
  if (status.ok()) status = load(&recording);
  JudgeReport report;
  if (!status.ok()) {
    ADD_FAILURE() << "the load itself failed: " << status;
    return report;
  }
  return Judge(recording, judge);
}

void ExpectCaught(const RigOptions& options, const Plant& plant, const Load& load, const JudgeOptions& judge) {
  RigOptions planted = options;
  plant(&planted.internals);
  const JudgeReport with_bug = RunAndJudge(std::move(planted), load, judge);
  EXPECT_FALSE(with_bug.violations.empty()) << "the planted bug was not found: " << with_bug.Summary();
  const JudgeReport without_bug = RunAndJudge(options, load, judge);
  EXPECT_TRUE(without_bug.violations.empty()) << "without the bug: " << without_bug.Summary();
  if (!with_bug.violations.empty()) std::cout << "found: " << with_bug.violations.front() << "\n";
}

// The first thread runs the calls; the second one's history is empty.
Load Calls(std::vector<Operation> operations) {
  return [operations = std::move(operations)](Recording* recording) {
    const absl::Status status = recording->RunAll({operations, {}});
    return status.ok() ? recording->Finish() : status;
  };
}

RigOptions SmallRig() {
  RigOptions options;
  options.image = MakeSmallImage(1024);
  return options;
}

TEST(planted, always_elide) {
  ExpectCaught(
      SmallRig(), [](core::VolumeInternals* internals) { internals->ledger.always_elide = true; },
      [](Recording* recording) {
        const absl::Status status = recording->RunAll({GenerateWorkload({.seed = 3, .operations = 60}), {}});
        recording->Kill();  // an unmount waits for proof that its checkpoint is durable, which never comes
        return status;
      },
      ModelOnly());
}

TEST(planted, need_is_issued) {
  ExpectCaught(
      SmallRig(), [](core::VolumeInternals* internals) { internals->ledger.need_is_issued = true; },
      Calls({Create(1, "f"), Write(1, 0, 8192, 1), Sync(1), Write(1, 0, 4096, 2), DataSync(1), Write(1, 4096, 4096, 3),
             DataSync(1), Write(1, 0, 4096, 4), DataSync(1)}),
      ModelOnly());
}

TEST(planted, commit_without_preflush) {
  RigOptions options = SmallRig();
  options.device.native_fua = true;  // the record needs no flush, so only PRE makes the rest durable
  ExpectCaught(
      options, [](core::VolumeInternals* internals) { internals->planted.commit_without_preflush = true; },
      Calls({Create(1, "f"), Write(1, 0, 8192, 1), Sync(1), Create(2, "g"), Write(2, 0, 8192, 2), Sync(2)}),
      ModelOnly());
}

// While a commit that covers the file's size waits for its record, the file is overwritten and synced: the sync joins
// the commit, whose preflush came before the overwrite.
TEST(planted, skip_sync_step_2) {
  const auto record_seen = std::make_shared<std::atomic<bool>>(false);
  const auto armed = std::make_shared<std::atomic<bool>>(false);
  RigOptions options = SmallRig();
  options.device.native_fua = true;
  options.faults = [record_seen, armed](const DeviceRequest& request) {
    blockio::FaultDevice::Verdict verdict;
    if (request.fua && armed->load()) {
      record_seen->store(true);
      verdict.delay_us = 200000;
    }
    return verdict;
  };
  const Load load = [record_seen, armed](Recording* recording) {
    const std::vector<Operation> first = {Create(1, "f"),          Write(1, 0, 8192, 1), Sync(1),
                                          Write(1, 8192, 8192, 2), Write(1, 0, 4096, 3), DataSync(1)};
    const std::vector<Operation> second = {Create(1, "g"), Write(1, 0, 4096, 9), Sync(1)};
    absl::Status status;
    for (size_t call = 0; call < 4; ++call) status.Update(recording->runner(0).RunOne(call, first[call]));
    for (size_t call = 0; call < 2; ++call) status.Update(recording->runner(1).RunOne(call, second[call]));
    std::this_thread::sleep_for(kSettle);
    record_seen->store(false);
    armed->store(true);
    absl::Status other;
    std::thread committer([&] { other = recording->runner(1).RunOne(2, second[2]); });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!record_seen->load() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    armed->store(false);
    for (size_t call = 4; call < 6; ++call) status.Update(recording->runner(0).RunOne(call, first[call]));
    committer.join();
    status.Update(other);
    recording->SetHistories({first, second});
    if (!record_seen->load()) status.Update(absl::InternalError("no commit record was seen"));
    status.Update(recording->Finish());
    return status;
  };
  ExpectCaught(
      options, [](core::VolumeInternals* internals) { internals->planted.skip_sync_step_2 = true; }, load, ModelOnly());
}

TEST(planted, forget_evicted_need) {
  constexpr NodeId kFiles = 12;
  std::vector<Operation> operations;
  for (NodeId file = 1; file <= kFiles; ++file) {
    operations.push_back(Create(file, "f" + std::to_string(file)));
    operations.push_back(Write(file, 0, 4096, file));
    operations.push_back(Sync(file));
    operations.push_back(Close(file));
  }
  operations.push_back(Write(1, 0, 4096, 100));
  const size_t settle_after = operations.size();
  // A change that puts the inode's times into a transaction, once the write has ended: only then may it leave memory.
  operations.push_back({.kind = OperationKind::kLink, .node = 1, .name = "again"});
  operations.push_back(Close(1));
  for (NodeId file = 2; file <= kFiles; ++file) {
    operations.push_back(DataSync(file));  // clean: costs nothing, but loads the inode
    operations.push_back(Close(file));
  }
  operations.push_back(DataSync(1));
  RigOptions options = SmallRig();
  options.internals.inode_cache_limit = 2;
  const Load load = [operations, settle_after](Recording* recording) {
    absl::Status status;
    for (size_t call = 0; call < operations.size() && status.ok(); ++call) {
      if (call == settle_after) std::this_thread::sleep_for(kSettle);
      status = recording->runner(0).RunOne(call, operations[call]);
    }
    recording->SetHistories({operations, {}});
    status.Update(recording->Finish());
    return status;
  };
  ExpectCaught(
      options, [](core::VolumeInternals* internals) { internals->planted.forget_evicted_need = true; }, load,
      ModelOnly());
}

// Blocks of directories are logged, freed, and come back as data of a file: replay of the old copies destroys the data.
TEST(planted, skip_revoke) {
  constexpr NodeId kFolders = 40;
  const Load load = [](Recording* recording) {
    std::vector<Operation> operations;
    absl::Status status;
    const auto run = [&](Operation operation) {
      if (status.ok()) status = recording->runner(0).RunOne(operations.size(), operation);
      operations.push_back(std::move(operation));
    };
    for (NodeId folder = 1; folder <= kFolders; ++folder) run(MakeFolder(folder, "d" + std::to_string(folder)));
    run(Sync(kBaseNode));
    for (NodeId folder = 1; folder <= kFolders; ++folder) {
      run(Remove(OperationKind::kRemoveDirectory, "d" + std::to_string(folder)));
      run(Close(folder));
    }
    std::this_thread::sleep_for(kSettle);  // their blocks are freed by a worker
    run(Create(100, "all"));
    run(Sync(kBaseNode));  // and may be used again from here on
    if (!status.ok()) return status;
    // Until the volume is full, so that most of what the directories had is used again. A refused call leaves no trace.
    uint64_t at = 0;
    for (const uint64_t length : {1U << 20U, 1U << 16U, 1U << 13U, 1U << 10U}) {
      while (true) {
        const Operation write = Write(100, at, length, 7);
        const absl::Status written = recording->runner(0).RunOne(operations.size(), write);
        if (absl::IsResourceExhausted(written)) break;
        if (!written.ok()) return written;
        operations.push_back(write);
        at += length;
      }
    }
    run(DataSync(100));
    recording->SetHistories({std::move(operations), {}});
    recording->Kill();  // an unmount would empty the log
    return status;
  };
  JudgeOptions judge = ModelOnly();
  judge.keep_all = true;
  judge.event_step = 61;
  RigOptions options;
  options.image = MakeDirtyImage(8U << 20U, "-b 1024 -N 256 -m 0 -J size=1");  // without blocks reserved for root
  ExpectCaught(
      options, [](core::VolumeInternals* internals) { internals->planted.skip_revoke = true; }, load, judge);
}

// A file that is synced, unlinked and back after the cut must not hold what another file wrote into its blocks.
TEST(planted, reuse_freed_early) {
  constexpr uint64_t kChunk = 512U << 10U;
  std::vector<Operation> operations;
  operations.push_back(Create(1, "a"));
  for (uint64_t i = 0; i < 7; ++i) operations.push_back(Write(1, i * kChunk, kChunk, 1));
  operations.push_back(Sync(1));
  operations.push_back(Remove(OperationKind::kUnlink, "a"));
  operations.push_back(Close(1));
  operations.push_back(Create(2, "b"));
  // Together larger than the volume: the second file needs blocks of the first.
  for (uint64_t i = 0; i < 9; ++i) operations.push_back(Write(2, i * kChunk, kChunk, 2));
  JudgeOptions judge = ModelOnly();
  judge.keep_all = true;
  ExpectCaught(
      SmallRig(), [](core::VolumeInternals* internals) { internals->planted.reuse_freed_early = true; },
      Calls(std::move(operations)), judge);
}

// A killed process leaves a write in the device's cache; the next one syncs the file.
TEST(planted, no_flush_at_mount) {
  const Load load = [](Recording* recording) {
    const std::vector<Operation> operations = {Create(1, "f"), Write(1, 0, 8192, 1), Sync(1),
                                               Close(1),       Write(1, 0, 4096, 2), DataSync(1)};
    absl::Status status;
    for (size_t call = 0; call < 3; ++call) status.Update(recording->runner(0).RunOne(call, operations[call]));
    const InodeId inode = recording->runner(0).inode(1);
    status.Update(recording->runner(0).RunOne(3, operations[3]));
    status.Update(recording->Finish());
    status.Update(recording->Restart());
    if (!status.ok()) return status;
    recording->runner(0).Adopt(1, inode);
    status.Update(recording->runner(0).RunOne(4, operations[4]));
    std::this_thread::sleep_for(kSettle);  // the write is at the device
    recording->Kill();
    status.Update(recording->Restart());
    if (!status.ok()) return status;
    recording->runner(0).Adopt(1, inode);
    status.Update(recording->runner(0).RunOne(5, operations[5]));
    recording->SetHistories({operations, {}});
    status.Update(recording->Finish());
    return status;
  };
  ExpectCaught(
      SmallRig(), [](core::VolumeInternals* internals) { internals->planted.no_flush_at_mount = true; }, load,
      ModelOnly());
}

// A flush fails and reaches nothing; whatever is acknowledged afterwards must be there.
TEST(planted, durable_on_failure) {
  const auto armed = std::make_shared<std::atomic<bool>>(false);
  RigOptions options = SmallRig();
  options.faults = [armed](const DeviceRequest& request) {
    blockio::FaultDevice::Verdict verdict;
    if (request.operation == elidefs::Operation::kFlush && armed->exchange(false)) verdict.error = EIO;
    return verdict;
  };
  const Load load = [armed](Recording* recording) {
    const std::vector<Operation> operations = {Create(1, "f"),       Write(1, 0, 8192, 1), Sync(1),
                                               Write(1, 0, 4096, 2), DataSync(1),          DataSync(1)};
    absl::Status status;
    for (size_t call = 0; call < 4; ++call) status.Update(recording->runner(0).RunOne(call, operations[call]));
    std::this_thread::sleep_for(kSettle);
    armed->store(true);
    // Failures are right here; a success is judged by what the cut leaves.
    (void)recording->runner(0).RunOne(4, operations[4]);
    (void)recording->runner(0).RunOne(5, operations[5]);
    armed->store(false);
    recording->SetHistories({operations, {}});
    recording->Kill();
    return status;
  };
  ExpectCaught(
      options, [](core::VolumeInternals* internals) { internals->ledger.durable_on_failure = true; }, load,
      ModelOnly());
}

}  // namespace
}  // namespace elidefs::simulator
