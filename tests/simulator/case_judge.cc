#include "tests/simulator/case_judge.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulator/error_marks.h"
#include "tests/simulator/fault_script.h"
#include "tests/simulator/overlay_device.h"
#include "tests/simulator/scheduler/scheduler.h"
#include "tests/simulator/structure.h"

namespace elidefs::simulator {

using Cut = blockio::VolatileCacheDevice::Cut;

CaseJudge::CaseJudge(const Recording& recording, std::string name, Campaign* campaign, LaboratoryReport* report)
    : recording_(recording), name_(std::move(name)), campaign_(campaign), report_(report) {}

void CaseJudge::Violation(const std::string& where, const std::string& problem) {
  report_->violations.push_back(absl::StrCat(name_, ", ", where, ": ", problem));
}

void CaseJudge::Run() {
  blockio::CutCursor cursor(&recording_.device().history());
  const std::vector<std::vector<Progress>> progress = recording_.ProgressByEvent();
  for (size_t index = recording_.first_event(); index <= recording_.device().event_count(); ++index) {
    if (report_->violations.size() >= campaign_->options->most_violations) return;
    cursor.MoveTo(index);
    CutAt(cursor, progress[index], absl::StrCat("cut before event ", index), 0);
  }
}

void CaseJudge::CutAt(blockio::CutCursor& cursor, const std::vector<Progress>& progress, const std::string& where,
                      uint32_t nesting) {
  const LaboratoryOptions& options = *campaign_->options;
  const auto judge = [&](const std::string& what, const std::function<void()>& keep) {
    ++report_->cuts;
    cursor.image().Mark();
    keep();
    JudgeImage(cursor.image(), progress, absl::StrCat(where, ", ", what), nesting);
    cursor.image().Rollback();
  };
  judge("all lost", [] {});
  const size_t pending = cursor.pending().size();
  if (pending == 0) return;
  judge("all kept", [&] { cursor.Keep(Cut::kKeepAll, 0); });
  if (pending > 1 && pending <= options.whole_sets_up_to) {
    for (uint64_t which = 1; which + 1 < uint64_t{1} << pending; ++which) {
      judge(absl::StrCat("writes ", which, " kept"), [&] { cursor.KeepWrites(which); });
    }
  }
  for (uint32_t round = 0; round < options.random_per_cut; ++round) {
    const uint64_t seed = options.seed * 1000003 + cursor.index() * 31 + round;
    judge(absl::StrCat("random ", seed), [&] { cursor.Keep(Cut::kRandom, seed); });
  }
}

void CaseJudge::JudgeImage(blockio::SectorImage& image, const std::vector<Progress>& progress, const std::string& where,
                           uint32_t nesting) {
  const uint64_t fingerprint = image.fingerprint();
  const auto [entry, inserted] = verdicts_.try_emplace(fingerprint);
  Verdict& verdict = entry->second;
  if (inserted) {
    ++report_->judged;
    if (nesting > 0) ++report_->nested;
    const bool is_new = campaign_->is_new(fingerprint);
    if (is_new) ++report_->images;
    const LaboratoryOptions& options = *campaign_->options;
    const bool ask = is_new && options.oracle_every != 0 && fingerprint % options.oracle_every == 0;
    const bool nest = options.nested_every != 0 && nesting < options.most_nesting &&
                      fingerprint / 7 % (options.nested_every >> (2 * nesting) | 1U) == 0;
    std::vector<uint8_t> bytes;
    if (ask || nest) bytes = image.Bytes();
    verdict = Examine(image);
    if (!verdict.problem.empty()) return Violation(where, verdict.problem);
    if (ask) {
      const std::string problem = AskOracles(bytes, progress);
      if (!problem.empty()) return Violation(where, problem);
    }
    // Invalidates `verdict`.
    if (nest) CutRecovery(std::move(bytes), progress, where, nesting + 1);
  }
  Verdict& known = verdicts_.at(fingerprint);
  std::vector<std::pair<size_t, size_t>> moment;
  for (const Progress& thread : progress) moment.emplace_back(thread.begun, thread.ended);
  if (std::find(known.compared.begin(), known.compared.end(), moment) != known.compared.end()) return;
  known.compared.push_back(std::move(moment));
  const std::string difference = CompareTrees(recording_, known.trees, progress);
  if (!difference.empty()) Violation(where, absl::StrCat("elidefs reads: ", difference));
}

std::string CaseJudge::MountAndUnmount(blockio::SectorImage& image, bool may_be_marked, Trees* trees) const {
  std::string problem;
  RunSimulated({.seed = campaign_->options->seed}, [&] {
    absl::StatusOr<std::unique_ptr<Volume>> volume =
        Volume::Open(MakeOverlayDevice(&image), RigOptions::QuietOptions());
    if (!volume.ok()) {
      problem = absl::StrCat("mount: ", volume.status().ToString());
      return;
    }
    if ((*volume)->read_only() && !may_be_marked) {
      problem = absl::StrCat("mounted read-only: ", (*volume)->Stats().read_only_reason);
      return;
    }
    if (trees != nullptr) *trees = ReadTrees(recording_, volume->get());
    const absl::Status closed = (*volume)->Close();
    volume->reset();
    if (!closed.ok()) problem = absl::StrCat("unmount: ", closed.ToString());
  });
  return problem;
}

CaseJudge::Verdict CaseJudge::Examine(blockio::SectorImage& image) const {
  Verdict verdict;
  verdict.problem = MountAndUnmount(image, campaign_->failing_device, &verdict.trees);
  if (verdict.problem.empty() && campaign_->failing_device && ClearErrorMarks(image)) {
    // The structure has to be sound all the same: the marks go, and the volume is mounted for writing.
    verdict.problem = MountAndUnmount(image, false, nullptr);
  }
  if (!verdict.problem.empty()) return verdict;
  const std::string fault = CheckStructure(image);
  if (!fault.empty()) verdict.problem = absl::StrCat("after mount and unmount: ", fault);
  return verdict;
}

std::string CaseJudge::AskOracles(const std::vector<uint8_t>& image, const std::vector<Progress>& progress) {
  ++report_->by_e2fsck;
  const std::string problem = CompareRecoveries(image);
  if (!problem.empty() || !campaign_->with_kernel) return problem;
  ++report_->by_kernel;
  const std::string difference = CompareTrees(recording_, ReadTreesWithKernel(recording_, image), progress);
  return difference.empty() ? "" : absl::StrCat("the kernel reads: ", difference);
}

// The image is mounted and unmounted on a device that keeps a history, and the power is cut at every event of that.
void CaseJudge::CutRecovery(std::vector<uint8_t> image, const std::vector<Progress>& progress, const std::string& where,
                            uint32_t nesting) {
  const std::unique_ptr<blockio::VolatileCacheDevice> device =
      blockio::VolatileCacheDevice::Create(std::move(image), {});
  FaultScript script(static_cast<FaultKind>(verdicts_.size() % kFaultKinds), verdicts_.size());
  std::unique_ptr<blockio::FaultDevice> faults;
  if (campaign_->failing_device) {
    script.Arm(device.get());
    faults = blockio::FaultDevice::Create(device.get(),
                                          [&script](const DeviceRequest& request) { return script.Decide(request); });
  }
  RunSimulated({.seed = campaign_->options->seed}, [&] {
    const std::unique_ptr<Connection> connection =
        Connection::To(faults != nullptr ? static_cast<BlockDevice*>(faults.get()) : device.get());
    absl::StatusOr<std::unique_ptr<Volume>> volume = core::OpenVolumeWithInternals(
        connection->TakeDevice(), RigOptions::QuietOptions(), campaign_->options->internals);
    if (volume.ok()) (*volume)->Close().IgnoreError();  // the outer image's verdict speaks of failures
  });
  blockio::CutCursor cursor(&device->history());
  for (size_t index = 0; index <= device->event_count(); ++index) {
    if (report_->violations.size() >= campaign_->options->most_violations) return;
    cursor.MoveTo(index);
    CutAt(cursor, progress, absl::StrCat(where, "; recovery cut before event ", index), nesting);
  }
}

}  // namespace elidefs::simulator
