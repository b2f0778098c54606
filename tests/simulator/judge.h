// Judge: every image that a power cut could leave of a recording, examined by elidefs, e2fsck and the kernel.
//
// The four steps for one image: (1) mount with elidefs, compare with the model, unmount cleanly, `e2fsck -fn` must have
// no complaint; (2) on a copy recovery by e2fsck; (3) the recovery of elidefs and that of e2fsck must write the same
// blocks; (4) mount with the kernel and compare with the model. Step 1 is taken for every distinct image, the others
// for a sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/rig.h"

namespace elidefs::simulator {

struct JudgeOptions {
  bool drop_all = true;
  bool keep_all = false;
  uint32_t random_per_cut = 1;  // how many random survivals of the unflushed writes
  uint64_t seed = 1;
  size_t event_step = 1;          // cut at every such event
  size_t all_steps_every = 25;    // distinct images; 0: never
  bool check_with_e2fsck = true;  // the e2fsck part of step 1
  size_t most_violations = 3;     // stops then
  size_t first_event = 0;         // cuts from here on
  unsigned threads = 2;
  bool allow_read_only = false;  // after device errors: the volume may be marked, and then is mounted read-only
};

struct JudgeReport {
  size_t cuts = 0;
  size_t images = 0;  // distinct ones
  size_t with_all_steps = 0;
  size_t with_kernel = 0;
  std::vector<std::string> violations;
  double seconds = 0;

  std::string Summary() const;
};

JudgeReport Judge(const Recording& recording, const JudgeOptions& options);

// The blocks of `image` after elidefs's own journal recovery alone.
absl::StatusOr<std::vector<uint8_t>> ReplayWithElidefs(const std::vector<uint8_t>& image);
// True if the image's superblock begins an orphan list.
bool HasOrphans(const std::vector<uint8_t>& image);
// Empty if the images agree in every block but superblocks and the journal itself.
std::string CompareReplays(const std::vector<uint8_t>& ours, const std::vector<uint8_t>& theirs);

}  // namespace elidefs::simulator
