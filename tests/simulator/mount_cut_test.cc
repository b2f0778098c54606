// Mounting and unmounting, cut at every event with every choice of what survives: e2fsck recovers each image as at
// boot, without a question (a log with data under a superblock without needs_recovery is one).
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "blockio/device/write_history.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/rig.h"
#include "tests/simulator/scheduler/scheduler.h"

namespace elidefs::simulator {
namespace {

TEST(MountCutTest, E2fsckHasNoQuestion) {
  RigOptions options;
  options.image = MakeSmallImage(1024);
  Recording recording(std::move(options));
  RunSimulated({}, [&recording] {
    // The second mount begins with a log that was used.
    for (int mount = 0; mount < 2; ++mount) {
      ASSERT_TRUE((mount == 0 ? recording.Start(1) : recording.Restart()).ok());
      const std::string name(1, static_cast<char>('a' + mount));
      ASSERT_TRUE(recording.volume().MakeNode(kRootInodeId, name, S_IFREG | 0644, 0, Credentials{}).ok());
      ASSERT_TRUE(recording.volume().Flush().ok());
      ASSERT_TRUE(recording.Finish().ok());
    }
  });
  blockio::CutCursor cursor(&recording.device().history());
  std::set<uint64_t> seen;
  for (size_t index = 0; index <= recording.device().event_count(); ++index) {
    cursor.MoveTo(index);
    const size_t pending = cursor.pending().size();
    ASSERT_LE(pending, 12U);
    for (uint64_t which = 0; which < uint64_t{1} << pending; ++which) {
      cursor.image().Mark();
      cursor.KeepWrites(which);
      if (seen.insert(cursor.image().fingerprint()).second) {
        const ImageFile image(cursor.image().Bytes());
        const ProgramResult result = RunProgram({"e2fsck", "-p", image.path()});
        EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 1)
            << "before event " << index << ", writes " << which << " kept: " << result.output;
      }
      cursor.image().Rollback();
    }
  }
  std::cout << seen.size() << " images\n";
  EXPECT_GT(seen.size(), 20U);
}

}  // namespace
}  // namespace elidefs::simulator
