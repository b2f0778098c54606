// The structural check finds each kind of damage that e2fsck finds, and nothing on what mke2fs and elidefs leave.
#include "tests/simulator/structure.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "core/ondisk/checksums.h"
#include "core/ondisk/super_block.h"
#include "core/ondisk/validate.h"
#include "tests/simulator/exhaustive.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/rig.h"
#include "tests/simulator/scheduler/scheduler.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::simulator {
namespace {

std::string Check(const std::vector<uint8_t>& image) {
  return CheckStructure(blockio::SectorImage(std::make_shared<const blockio::BaseImage>(image)));
}

std::vector<uint8_t> TreeImage() {
  absl::StatusOr<PreparedImage> prepared = absl::InternalError("not run");
  RunSimulated({}, [&] { prepared = Prepare(MakeSmallImage(1024), SmallTree()); });
  if (!prepared.ok()) throw std::runtime_error(prepared.status().ToString());
  return prepared->image->bytes();
}

TEST(Structure, AcceptsWhatIsSound) {
  EXPECT_EQ(Check(MakeSmallImage(1024)), "");
  EXPECT_EQ(Check(MakeSmallImage(4096)), "");
  EXPECT_EQ(Check(TreeImage()), "");
}

// debugfs changes a field and its checksums, so that only the structure is wrong; e2fsck agrees that it is.
struct Damage {
  const char* name;
  const char* command;
};

class StructureDamage : public testing::TestWithParam<Damage> {};

TEST_P(StructureDamage, IsFound) {
  const test_support::TempFile file(TreeImage());
  test_support::MustRun(std::string("debugfs -w -R '") + GetParam().command + "' " + file.path() + " 2>&1");
  EXPECT_NE(Check(file.Read()), "");
  EXPECT_NE(CheckWithE2fsck(ImageFile(file.Read())), "") << "not even damage to e2fsck";
}
INSTANTIATE_TEST_SUITE_P(
    Fields, StructureDamage,
    testing::Values(Damage{"LinkCount", "sif /t0/foo links_count 5"}, Damage{"BlockCount", "sif /t0/foo blocks 44"},
                    Damage{"DirectoryLinks", "sif /t0 links_count 9"}, Damage{"LostInode", "unlink /t0/A/bar"},
                    Damage{"FreedBlock", "freeb 270 60"}, Damage{"MarkedBlock", "setb 7000"},
                    Damage{"FreedInode", "freei /t0/A/bar"}, Damage{"FreeBlocks", "set_bg 0 free_blocks_count 7"},
                    Damage{"FreeInodes", "set_bg 0 free_inodes_count 7"},
                    Damage{"Directories", "set_bg 0 used_dirs_count 9"}, Damage{"Unused", "set_bg 0 itable_unused 250"},
                    Damage{"Deleted", "sif /t0/foo dtime 77"}, Damage{"SuperBlocks", "ssv free_blocks_count 5"}),
    [](const testing::TestParamInfo<Damage>& info) { return std::string(info.param.name); });

// What an unmount must not leave, though e2fsck takes it in silence.
TEST(Structure, FindsAnUnfinishedUnmount) {
  for (const char* command : {"ssv last_orphan 12", "ssv state 2", "feature needs_recovery"}) {
    const test_support::TempFile file(TreeImage());
    test_support::MustRun(std::string("debugfs -w -R '") + command + "' " + file.path() + " 2>&1");
    EXPECT_NE(Check(file.Read()), "") << command;
  }
}

TEST(Structure, FindsWrongChecksums) {
  const std::vector<uint8_t> image = TreeImage();
  // Superblock, descriptors, two bitmaps and the inode table lie here, beside blocks without a checksum.
  uint32_t found = 0;
  for (size_t block = 1; block < 400; ++block) {
    std::vector<uint8_t> damaged = image;
    damaged[block * 1024 + 0x20] ^= 1;
    if (!Check(damaged).empty()) ++found;
  }
  EXPECT_GE(found, 5U);
}

}  // namespace
}  // namespace elidefs::simulator
