#include "tests/simulator/laboratory.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/thread.h"
#include "tests/simulator/case_judge.h"
#include "tests/simulator/exhaustive.h"
#include "tests/simulator/fault_script.h"
#include "tests/simulator/faulted_history.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

constexpr char kFaults[] = "faults";
constexpr char kOverlaps[] = "overlaps";
bool Fails(const std::string& workload) {
  return workload == kFaults || workload == kOverlaps;
}
constexpr size_t kMostFingerprints = 64U << 20U;  // 8 bytes each, and as much again for the table
constexpr uint32_t kPreemptOneIn = 12;

// Small, so that mounting it reads little: a journal of the smallest legal size and as much again.
constexpr uint64_t kTinyImageBytes = 3U << 20U;

uint32_t LengthOf(const std::string& workload) {
  return static_cast<uint32_t>(workload.back() - '0');
}
bool IsSequences(const std::string& workload) {
  return workload.rfind("sequences", 0) == 0;
}

// The chunk server's load: every file written, then every file synced, then the same over again.
std::vector<Operation> ChunkLoad(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto files = static_cast<NodeId>(2 + random() % 10);
  const uint64_t chunk = 1024 + random() % 12000;
  std::vector<Operation> operations;
  for (NodeId file = 1; file <= files; ++file) {
    operations.push_back({.kind = OperationKind::kCreate, .node = file, .name = absl::StrCat("chunk", file)});
  }
  for (uint64_t round = 0; round < 3; ++round) {
    for (NodeId file = 1; file <= files; ++file) {
      operations.push_back({.kind = OperationKind::kWrite,
                            .node = file,
                            .offset_bytes = round == 2 ? chunk : 0,
                            .length_bytes = chunk,
                            .pattern = seed * 100 + round * 20 + file});
    }
    for (NodeId file = 1; file <= files; ++file) {
      const bool full = random() % 4 == 0;
      operations.push_back({.kind = full ? OperationKind::kSync : OperationKind::kDataSync, .node = file});
    }
  }
  return operations;
}

// Each sync needs a flush and no commit.
std::vector<Operation> OverwritesAndSyncs(uint64_t seed) {
  constexpr uint64_t kRounds = 8;
  std::vector<Operation> operations = {
      {.kind = OperationKind::kCreate, .node = 1, .name = "file"},
      {.kind = OperationKind::kWrite, .node = 1, .length_bytes = 4096, .pattern = seed * 100},
      {.kind = OperationKind::kSync, .node = 1},
  };
  for (uint64_t round = 1; round <= kRounds; ++round) {
    operations.push_back(
        {.kind = OperationKind::kWrite, .node = 1, .length_bytes = 4096, .pattern = seed * 100 + round});
    operations.push_back({.kind = OperationKind::kDataSync, .node = 1});
  }
  return operations;
}

}  // namespace

// What recordings begin with; made once.
struct Laboratory::Images {
  std::shared_ptr<const blockio::BaseImage> small;  // 8 MiB
  PreparedImage tree;
};

void FaultTally::Add(const FaultTally& other) {
  cases += other.cases;
  injected += other.injected;
  failed_calls += other.failed_calls;
  read_only += other.read_only;
}

void LaboratoryReport::Add(const LaboratoryReport& other) {
  cases += other.cases;
  cuts += other.cuts;
  images += other.images;
  judged += other.judged;
  nested += other.nested;
  by_e2fsck += other.by_e2fsck;
  by_kernel += other.by_kernel;
  for (const auto& [kind, tally] : other.faults) faults[kind].Add(tally);
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
}

std::string LaboratoryReport::Summary() const {
  std::string text = absl::StrCat(cases, " cases, ", cuts, " cuts, ", images, " distinct images (", judged, " judged, ",
                                  nested, " of them left by an interrupted recovery), ", by_e2fsck, " by e2fsck, ",
                                  by_kernel, " by the kernel, ", violations.size(), " violations");
  for (const auto& [kind, tally] : faults) {
    absl::StrAppend(&text, "\n  ", kind, ": ", tally.cases, " cases, ", tally.injected, " injected, ",
                    tally.failed_calls, " calls failed, ", tally.read_only, " ended read-only");
  }
  for (const std::string& violation : violations) absl::StrAppend(&text, "\n  ", violation);
  return text;
}

const std::vector<std::string>& Workloads() {
  static const auto* const kNames =
      new std::vector<std::string>{"sequences1", "sequences2", "sequences3", "random", "threads", "chunks",
                                   "wrap",       "fua",        "leaves",     "faults", "overlaps"};
  return *kNames;
}

Laboratory::Laboratory(const LaboratoryOptions& options)
    : options_(options),
      images_([] {
        auto images = std::make_unique<Images>();
        images->small = std::make_shared<const blockio::BaseImage>(MakeSmallImage(1024));
        RunSimulated({}, [&] {
          absl::StatusOr<PreparedImage> tree =
              Prepare(MakeDirtyImage(kTinyImageBytes, "-b 1024 -N 64 -m 0 -J size=1"), SmallTree());
          if (tree.ok()) images->tree = *std::move(tree);
        });
        return images;
      }()),
      with_kernel_(CanMount()) {}

Laboratory::~Laboratory() = default;

std::optional<uint64_t> Laboratory::CaseCount(const std::string& workload) {
  if (IsSequences(workload)) return SequenceCount(LengthOf(workload));
  return std::nullopt;
}

uint64_t Laboratory::CaseNumber(const std::string& workload, uint64_t place) {
  constexpr uint64_t kStride = 1000003;  // a prime: every one is visited
  const std::optional<uint64_t> count = CaseCount(workload);
  return count.has_value() ? place * kStride % *count : place;
}

bool Laboratory::IsNew(uint64_t fingerprint) {
  MutexLock lock(mutex_);
  return seen_.size() < kMostFingerprints && seen_.insert(fingerprint).second;
}

bool Laboratory::HasEnough() const {
  MutexLock lock(mutex_);
  return total_.violations.size() >= options_.most_violations;
}

LaboratoryReport Laboratory::Report() const {
  MutexLock lock(mutex_);
  return total_;
}

absl::Status Laboratory::MakeRecording(const std::string& workload, uint64_t number,
                                       std::unique_ptr<Recording>* recording) const {
  RigOptions rig;
  rig.internals = options_.internals;
  std::vector<std::vector<Operation>> histories;
  uint32_t threads = 1;
  if (IsSequences(workload)) {
    if (images_->tree.image == nullptr) return absl::InternalError("the small tree could not be made");
    std::optional<std::vector<Operation>> sequence = Sequence(LengthOf(workload), number);
    if (!sequence.has_value()) return absl::OkStatus();
    rig.shared_image = images_->tree.image;
    *recording = std::make_unique<Recording>(std::move(rig));
    absl::Status status = (*recording)->StartFrom(images_->tree);
    if (status.ok()) status = (*recording)->RunAll({*std::move(sequence)});
    if (status.ok()) status = (*recording)->Finish();
    return status;
  }
  const uint64_t seed = options_.seed * 7919 + number;
  rig.shared_image = images_->small;
  rig.stacked = options_.stacked;
  if (workload == "chunks") {
    rig.device.reorder_seed = seed;
    histories.push_back(ChunkLoad(seed));
  } else {
    WorkloadOptions load;
    load.operations = 60;
    if (workload == "threads") {
      threads = 3;
      load.operations = 25;
      load.most_total_bytes /= threads;
      rig.device.max_queues = rig.volume.hardware_queues = 2;
      rig.device.reorder_seed = seed;
      rig.volume.worker_threads = 3;
      rig.volume.commit_interval_ms = 1 + seed % 20;
      rig.internals.inode_cache_limit = seed % 2 == 0 ? 3 : 16384;
    } else if (workload == "wrap") {
      // Many commits on a log of 1,024 blocks: it wraps, checkpoints, revokes and moves its tail.
      load.operations = 700;
      load.sync_percent = 60;
      load.most_write_bytes = 6000;
    } else if (workload == "fua") {
      rig.device.native_fua = true;
    } else if (workload == "leaves") {
      rig.leaves = 2 + seed % 2;
      rig.device.max_queues = rig.volume.hardware_queues = 2;
      rig.device.reorder_seed = seed;
    }
    for (uint32_t thread = 0; thread < threads; ++thread) {
      load.seed = seed * 16 + thread;
      histories.push_back(GenerateWorkload(load));
    }
  }
  *recording = std::make_unique<Recording>(std::move(rig));
  absl::Status status = (*recording)->Start(threads);
  if (status.ok()) status = (*recording)->RunAll(std::move(histories));
  // As it is after a while, too: what was written late is then part of it.
  if (seed % 3 == 0) SleepFor(std::chrono::milliseconds(50));
  if (status.ok()) status = (*recording)->Finish();
  return status;
}

absl::Status Laboratory::RecordFaults(const std::string& workload, uint64_t number,
                                      std::unique_ptr<Recording>* recording, LaboratoryReport* report) const {
  const uint64_t seed = options_.seed * 7919 + number;
  const bool overlaps = workload == kOverlaps;
  const FaultKind overlapping = number % 2 == 0 ? FaultKind::kFlushLosesCache : FaultKind::kFlushError;
  const auto script =
      std::make_shared<FaultScript>(overlaps ? overlapping : static_cast<FaultKind>(number % kFaultKinds), seed);
  const uint32_t threads = overlaps ? 4 : number / kFaultKinds % 2 == 0 ? 1 : 3;
  RigOptions rig;
  rig.internals = options_.internals;
  rig.shared_image = images_->small;
  rig.stacked = options_.stacked;
  rig.leaves = overlaps ? 1 : 1 + number / kFaultKinds / 2 % 2;
  rig.faults = [script](const DeviceRequest& request) { return script->Decide(request); };
  rig.internals.planted.out_of_space = [script] { return script->RefuseAllocation(); };
  rig.internals.inode_cache_limit = 3;
  rig.volume.metadata_cache_bytes = 64U << 10U;  // the least: so that reads happen
  if (threads > 1) {
    rig.device.max_queues = rig.volume.hardware_queues = overlaps ? 4 : 2;
    rig.device.reorder_seed = seed;
    rig.volume.worker_threads = 3;
    if (!overlaps) rig.volume.commit_interval_ms = 1 + seed % 20;
  }
  *recording = std::make_unique<Recording>(std::move(rig));
  absl::Status status = (*recording)->Start(threads);
  if (!status.ok()) return status;
  script->Arm(&(*recording)->device());
  std::vector<std::unique_ptr<FaultedHistory>> histories;
  std::vector<Thread> running;
  for (uint32_t thread = 0; thread < threads; ++thread) {
    WorkloadOptions load;
    load.seed = seed * 16 + thread;
    load.operations = 60 / threads;
    load.most_total_bytes /= threads;
    load.sync_percent = 25;
    histories.push_back(std::make_unique<FaultedHistory>(recording->get(), thread, script->OnlyFlushesFail()));
    running.emplace_back(absl::StrCat("load-", thread), [history = histories.back().get(), load, overlaps] {
      history->Run(overlaps ? OverwritesAndSyncs(load.seed) : GenerateWorkload(load));
    });
  }
  for (Thread& thread : running) thread.Join();
  FaultTally tally{
      .cases = 1, .injected = script->injected(), .read_only = (*recording)->volume().read_only() ? 1U : 0U};
  std::vector<std::vector<Operation>> executed;
  for (const auto& history : histories) {
    tally.failed_calls += history->failed_calls();
    if (!history->problem().empty()) status.Update(absl::InternalError(history->problem()));
    executed.push_back(history->executed());
  }
  report->faults[NameOf(script->kind())].Add(tally);
  (*recording)->SetHistories(std::move(executed));
  if (seed % 2 == 0) {
    (*recording)->Kill();
  } else {
    const absl::Status closed = (*recording)->Finish();
    if (script->IsHarmless()) status.Update(closed);
  }
  return status;
}

std::unique_ptr<Recording> Laboratory::Record(const std::string& workload, uint64_t number,
                                              LaboratoryReport* report) const {
  std::unique_ptr<Recording> recording;
  absl::Status status;
  const SchedulerOptions scheduler{.seed = options_.seed * 104729 + number, .preempt_one_in = kPreemptOneIn};
  RunSimulated(scheduler, [&] {
    status = Fails(workload) ? RecordFaults(workload, number, &recording, report)
                             : MakeRecording(workload, number, &recording);
  });
  if (!status.ok()) {
    report->violations.push_back(absl::StrCat("case ", workload, ":", number, " (seed ", options_.seed,
                                              "): the load itself failed: ", status.ToString()));
    return nullptr;
  }
  return recording;
}

LaboratoryReport Laboratory::RunCase(const std::string& workload, uint64_t number) {
  LaboratoryReport report;
  const std::unique_ptr<Recording> recording = Record(workload, number, &report);
  if (recording != nullptr) {
    ++report.cases;
    CaseJudge::Campaign campaign{.options = &options_,
                                 .with_kernel = with_kernel_,
                                 .failing_device = Fails(workload),
                                 .is_new = [this](uint64_t fingerprint) { return IsNew(fingerprint); }};
    CaseJudge(*recording, absl::StrCat("case ", workload, ":", number, " (seed ", options_.seed, ")"), &campaign,
              &report)
        .Run();
  }
  MutexLock lock(mutex_);
  total_.Add(report);
  return report;
}

}  // namespace elidefs::simulator
