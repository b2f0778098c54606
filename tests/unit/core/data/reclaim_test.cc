// A full volume waits for what deletions are about to free, and for nothing else.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "core/data/data_path.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/support/volume_rig.h"

namespace elidefs::core {
namespace {

TEST(ReclaimSpaceTest, WaitsForDeletionsThatWereDueBefore) {
  VolumeRig rig(test_support::MakeImage(uint64_t{8} << 20U, "-t ext4 -b 1024"));
  if (rig.context.workers == nullptr) rig.context.workers = std::make_unique<WorkerPool>(1, "test");
  DirtyTimes times(&rig.context, false);
  DataPath path(&rig.context, &times, {});
  auto deletion = std::make_unique<DataPath::Deletion>(&path);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    EXPECT_TRUE(path.ReclaimSpace());
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned.load());
  deletion.reset();
  waiter.join();
  EXPECT_FALSE(path.ReclaimSpace()) << "nothing is to come";
}

}  // namespace
}  // namespace elidefs::core
