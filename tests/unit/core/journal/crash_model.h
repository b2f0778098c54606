// CrashModel: a random history of transactions on a device with a volatile cache, and the check of an image after a
// cut: acknowledged transactions are there, the others all or nothing and in order, ordered data is there with its
// transaction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/planted_bugs.h"
#include "tests/unit/core/journal/journal_rig.h"

namespace elidefs::core {

struct CrashHistoryOptions {
  uint32_t seed = 1;
  uint32_t transactions = 30;
  uint32_t blocks_per_transaction = 4;
  uint32_t working_set_blocks = 12;
  uint32_t wait_every = 3;  // of so many commits one is waited for; the others overlap
  bool native_fua = false;
  bool magic_content = false;  // some blocks start with the journal's magic
  PlantedBugs planted;
};

class CrashModel {
 public:
  CrashModel(const TestVolume& volume, const CrashHistoryOptions& options);
  // Runs the history to its end (no clean shutdown).
  void RunHistory();
  size_t event_count() const { return device_->event_count(); }
  // Empty, or what is wrong with the image of a cut just before event `index`.
  std::string CheckCut(size_t index, blockio::VolatileCacheDevice::Cut mode, uint64_t seed) const;
  // Violations over cuts at every `step`-th event in all modes; stops after the first when `first_only`.
  uint32_t CountViolations(size_t step, std::string* first) const;
  const blockio::VolatileCacheDevice& device() const { return *device_; }

 private:
  std::vector<uint8_t> Content(uint32_t version, BlockNumber block) const;

  const TestVolume& volume_;
  const CrashHistoryOptions options_;
  std::unique_ptr<blockio::VolatileCacheDevice> device_;
  // version_[t][i]: the transaction that last wrote working-set block i as of transaction t (0: none).
  std::vector<std::vector<uint32_t>> version_;
};

}  // namespace elidefs::core
