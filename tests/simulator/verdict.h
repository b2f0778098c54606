// Verdict: what the judges of crash images share: reading a volume's trees, comparing them with the model, and asking
// those who are not elidefs. Threads: thread-safe. Errors: a text, empty when all is well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/simulator/rig.h"

namespace elidefs::simulator {

// By thread.
using Trees = std::vector<absl::StatusOr<ObservedTree>>;

Trees ReadTrees(const Recording& recording, Volume* volume);
// Mounts the image with the kernel; it is a copy that changes.
Trees ReadTreesWithKernel(const Recording& recording, const std::vector<uint8_t>& image);
// `progress`: how far each thread was at the cut.
std::string CompareTrees(const Recording& recording, const Trees& trees, const std::vector<Progress>& progress);

// Steps 2 and 3: e2fsck recovers the image and is content, and its replay writes what that of elidefs writes.
std::string CompareRecoveries(const std::vector<uint8_t>& image);

}  // namespace elidefs::simulator
