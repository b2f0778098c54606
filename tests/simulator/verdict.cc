#include "tests/simulator/verdict.h"

#include "absl/strings/str_cat.h"
#include "tests/simulator/judge.h"
#include "tests/simulator/oracles.h"

namespace elidefs::simulator {

Trees ReadTrees(const Recording& recording, Volume* volume) {
  Trees trees;
  for (uint32_t thread = 0; thread < recording.histories().size(); ++thread) {
    trees.push_back(ObserveVolume(volume, Recording::Folder(thread)));
  }
  return trees;
}

Trees ReadTreesWithKernel(const Recording& recording, const std::vector<uint8_t>& image) {
  const ImageFile raw(image);
  Trees trees;
  for (uint32_t thread = 0; thread < recording.histories().size(); ++thread) {
    trees.push_back(ObserveWithKernel(raw, Recording::Folder(thread).substr(1)));
  }
  return trees;
}

std::string CompareTrees(const Recording& recording, const Trees& trees, const std::vector<Progress>& progress) {
  for (size_t thread = 0; thread < trees.size(); ++thread) {
    if (!trees[thread].ok()) return trees[thread].status().ToString();
    const std::string difference = recording.histories()[thread].Explain(*trees[thread], progress[thread]);
    if (!difference.empty()) {
      return absl::StrCat("thread ", thread, " (", progress[thread].ended, " calls acknowledged): ", difference);
    }
  }
  return "";
}

std::string CompareRecoveries(const std::vector<uint8_t>& image) {
  std::vector<uint8_t> theirs;
  std::string problem = RecoverWithE2fsck(ImageFile(image), &theirs);
  if (!problem.empty()) return problem;
  const absl::StatusOr<std::vector<uint8_t>> ours = ReplayWithElidefs(image);
  if (!ours.ok()) return absl::StrCat("journal recovery: ", ours.status().ToString());
  // e2fsck clears orphans even with journal_only: only an image without any is comparable block by block.
  return HasOrphans(*ours) ? "" : CompareReplays(*ours, theirs);
}

}  // namespace elidefs::simulator
