// Damaged directories: with checksums every flipped bit is found; without, nothing crashes and nothing wrong is
// written.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/directory.h"
#include "core/extent/extent_tree.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {
namespace {

std::string FillCommands() {
  std::string commands = "write /dev/null one\nmkdir d\n";
  for (int i = 0; i < 120; ++i) absl::StrAppend(&commands, "ln one d/name_of_an_entry_", i, "\n");
  return commands;
}

bool Expected(const absl::Status& status) {
  return status.ok() || StatusToErrno(status) == EUCLEAN;
}

// Where the directory's blocks begin in the image.
std::vector<uint64_t> BlockOffsets(const std::vector<uint8_t>& image, InodeNumber number) {
  std::vector<uint64_t> offsets;
  MappingRig rig(image);
  const InodeRef inode = rig.Load(number);
  MutexLock lock(inode->mutex);
  ExtentTree tree(&rig.context(), inode.get());
  const absl::Status status = tree.ForEach(0, [&](const Mapping& mapping) {
    for (uint32_t i = 0; i < mapping.length; ++i) {
      offsets.push_back((mapping.physical + i) * rig.geometry().block_bytes);
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  return offsets;
}

// Damages `flips` bits of the directory's blocks and uses it in every way. Returns whether damage was reported.
bool UseDamaged(const std::vector<uint8_t>& image, const std::vector<uint64_t>& blocks, InodeNumber number,
                std::mt19937& random, uint32_t flips) {
  std::vector<uint8_t> damaged = image;
  for (uint32_t i = 0; i < flips; ++i) {
    damaged[blocks[random() % blocks.size()] + random() % 1024] ^= static_cast<uint8_t>(1U << random() % 8);
  }
  MappingRig rig(std::move(damaged));
  const InodeRef inode = rig.Load(number);
  MutexLock lock(inode->mutex);
  Directory directory(&rig.context(), inode.get());
  bool reported = false;
  const auto note = [&](const absl::Status& status) {
    EXPECT_TRUE(Expected(status) || StatusToErrno(status) == ENOENT) << status;
    if (!status.ok() && StatusToErrno(status) == EUCLEAN) {
      reported = true;
      EXPECT_NE(status.message().find(absl::StrCat("inode ", number)), std::string::npos) << status;
    }
  };
  uint32_t visited = 0;
  note(directory.ForEach(0, [&](const Directory::Entry& entry) {
    EXPECT_LE(entry.name.size(), kMaxNameBytes);
    return ++visited < 100000;
  }));
  EXPECT_LT(visited, 100000U);
  note(directory.Find("name_of_an_entry_100").status());
  note(directory.Find("missing").status());
  note(directory.IsEmpty().status());
  Handle handle = rig.Start(60);
  note(directory.Add(handle, "a_new_name", 12, kTypeRegular));
  note(directory.Remove(handle, "name_of_an_entry_3"));
  note(directory.Retarget(handle, "name_of_an_entry_5", 12, kTypeRegular));
  return reported;
}

TEST(HostileDirectory, FlippedBitsWithChecksumsAreAlwaysReported) {
  const std::vector<uint8_t> image = MakeMappingImage(4, "-b 1024 -J size=1 -N 64", FillCommands());
  const InodeNumber number = InodeOfPath(image, "/d");
  const std::vector<uint64_t> blocks = BlockOffsets(image, number);
  std::mt19937 random(11);
  for (int round = 0; round < kHostileRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 11, round ", round));
    EXPECT_TRUE(UseDamaged(image, blocks, number, random, 1));
  }
}

TEST(HostileDirectory, FlippedBitsWithoutChecksumsNeverCrash) {
  const std::vector<uint8_t> image = MakeMappingImage(4, "-b 1024 -J size=1 -N 64 -O ^metadata_csum", FillCommands());
  const InodeNumber number = InodeOfPath(image, "/d");
  const std::vector<uint64_t> blocks = BlockOffsets(image, number);
  std::mt19937 random(12);
  uint32_t reported = 0;
  for (int round = 0; round < kHostileRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 12, round ", round));
    reported += UseDamaged(image, blocks, number, random, 1 + round % 20) ? 1 : 0;
  }
  EXPECT_GT(reported, kHostileRounds / 6U);
}

TEST(HostileDirectory, HolesAndImpossibleSizesAreReported) {
  const std::vector<uint8_t> image = MakeMappingImage(4, "-b 1024 -J size=1 -N 64", FillCommands());
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  Directory directory(&rig.context(), inode.get());
  const auto list = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return StatusToErrno(directory.ForEach(0, [](const Directory::Entry&) { return true; }));
  };
  EXPECT_EQ(list(), 0);
  const uint64_t size = inode->size_bytes;
  inode->size_bytes = size + 1024;
  EXPECT_EQ(list(), EUCLEAN);
  inode->size_bytes = size + 1;
  EXPECT_EQ(list(), EUCLEAN);
  inode->size_bytes = uint64_t{1} << 40U;
  EXPECT_EQ(list(), EUCLEAN);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
