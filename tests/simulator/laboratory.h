// Laboratory: many recordings, every cut of each, every distinct image judged, fast. A case is a workload and a number;
// it makes its recording in a simulation (scheduler.h) and therefore repeats exactly.
//
// Each distinct image is mounted by elidefs (own recovery), compared with the model for every cut that leaves it,
// unmounted and examined by CheckStructure. A sample also goes to the judges that are not ours: e2fsck and the kernel
// (oracles.h); and a sample is cut again while elidefs recovers, and that again.
//
// Threads: RunCase may be called from several threads at once; each judges on its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "core/volume/internals.h"
#include "tests/simulator/rig.h"

namespace elidefs::simulator {

struct LaboratoryOptions {
  uint64_t seed = 1;                      // of what survives a cut, and of every interleaving
  uint32_t random_per_cut = 2;            // besides all lost and all kept
  uint32_t whole_sets_up_to = 4;          // so many pending writes: every subset of them is tried
  uint32_t oracle_every = 0;              // distinct images per one that e2fsck and the kernel see; 0: none
  uint32_t nested_every = 0;              // distinct images per one whose recovery is cut again; 0: none
  uint32_t most_nesting = 3;              // cuts within one another
  size_t most_violations = 3;             // RunCase does nothing more then
  core::VolumeInternals internals;        // planted bugs
  blockio::StackedDeviceOptions stacked;  // those of stacked devices
};

// What came of the recordings with one kind of fault.
struct FaultTally {
  uint64_t cases = 0;
  uint64_t injected = 0;      // requests and allocations
  uint64_t failed_calls = 0;  // as the application saw it
  uint64_t read_only = 0;     // volumes that ended so

  void Add(const FaultTally& other);
};

struct LaboratoryReport {
  uint64_t cases = 0;
  uint64_t cuts = 0;    // a moment and a choice of what survives
  uint64_t images = 0;  // distinct ones over the whole campaign
  uint64_t judged = 0;  // distinct ones of each recording, summed
  uint64_t nested = 0;  // of those: left by a cut of a recovery
  uint64_t by_e2fsck = 0;
  uint64_t by_kernel = 0;
  std::map<std::string, FaultTally> faults;  // by the kind's name
  std::vector<std::string> violations;

  void Add(const LaboratoryReport& other);
  std::string Summary() const;
};

// The kinds of cases. docs/testing.md describes them.
const std::vector<std::string>& Workloads();

class Laboratory {
 public:
  explicit Laboratory(const LaboratoryOptions& options);
  ~Laboratory();
  Laboratory(const Laboratory&) = delete;
  Laboratory& operator=(const Laboratory&) = delete;

  // How many cases there are; nothing: as many as one likes.
  static std::optional<uint64_t> CaseCount(const std::string& workload);
  // The case that comes in the given place. Large exhaustive sets are visited in an order that a stride scatters, so
  // that their beginning is a sample.
  static uint64_t CaseNumber(const std::string& workload, uint64_t place);
  // Runs one and judges it. What it finds is also added to Report().
  LaboratoryReport RunCase(const std::string& workload, uint64_t number);
  LaboratoryReport Report() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasEnough() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Images;

  // Nullptr with a violation in `report` if the recording itself went wrong, without one if the case makes no sense.
  std::unique_ptr<Recording> Record(const std::string& workload, uint64_t number, LaboratoryReport* report) const;
  absl::Status MakeRecording(const std::string& workload, uint64_t number, std::unique_ptr<Recording>* recording) const;
  // On a device that fails, or with a volume that is full for a while.
  absl::Status RecordFaults(const std::string& workload, uint64_t number, std::unique_ptr<Recording>* recording,
                            LaboratoryReport* report) const;
  // True the first time.
  bool IsNew(uint64_t fingerprint) ABSL_LOCKS_EXCLUDED(mutex_);

  const LaboratoryOptions options_;
  const std::unique_ptr<const Images> images_;
  const bool with_kernel_;
  mutable Mutex mutex_;
  absl::flat_hash_set<uint64_t> seen_ ABSL_GUARDED_BY(mutex_);  // bounded: kMostFingerprints
  LaboratoryReport total_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace elidefs::simulator
