// CaseJudge: judges one recording, in one thread. Inside of Laboratory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "blockio/device/write_history.h"
#include "tests/simulator/laboratory.h"
#include "tests/simulator/verdict.h"

namespace elidefs::simulator {

class CaseJudge {
 public:
  // What of a case's judging depends on the campaign.
  struct Campaign {
    const LaboratoryOptions* options = nullptr;
    bool with_kernel = false;
    bool failing_device = false;  // the volume may be marked with errors, and recovery meets faults as well
    absl::AnyInvocable<bool(uint64_t fingerprint)> is_new;
  };
  // `name` is what repeats the case. All borrowed.
  CaseJudge(const Recording& recording, std::string name, Campaign* campaign, LaboratoryReport* report);

  void Run();

 private:
  struct Verdict {
    std::string problem;  // of the image itself
    Trees trees;
    // Which moments were compared with it already: calls begun and ended, by thread.
    std::vector<std::vector<std::pair<size_t, size_t>>> compared;
  };

  void CutAt(blockio::CutCursor& cursor, const std::vector<Progress>& progress, const std::string& where,
             uint32_t nesting);
  void JudgeImage(blockio::SectorImage& image, const std::vector<Progress>& progress, const std::string& where,
                  uint32_t nesting);
  // Mounts the image and leaves it unmounted; the caller rolls it back.
  Verdict Examine(blockio::SectorImage& image) const;
  // The problem of a mount and unmount, which must be read-write; reads the trees if they are wanted.
  std::string MountAndUnmount(blockio::SectorImage& image, bool may_be_marked, Trees* trees) const;
  std::string AskOracles(const std::vector<uint8_t>& image, const std::vector<Progress>& progress);
  void CutRecovery(std::vector<uint8_t> image, const std::vector<Progress>& progress, const std::string& where,
                   uint32_t nesting);
  void Violation(const std::string& where, const std::string& problem);

  const Recording& recording_;
  const std::string name_;
  Campaign* const campaign_;
  LaboratoryReport* const report_;
  absl::flat_hash_map<uint64_t, Verdict> verdicts_;  // by fingerprint; bounded by the recording's cuts
};

}  // namespace elidefs::simulator
