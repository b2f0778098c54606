// The group table against dumpe2fs, which says which blocks and inodes of a group are free.
#include "core/alloc/group_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "core/alloc/bitmap.h"
#include "core/ondisk/checksums.h"
#include "tests/unit/core/support/image_matrix.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/support/volume_rig.h"

namespace elidefs::core {
namespace {

using test_support::MakeImage;

constexpr uint64_t kMiB = uint64_t{1} << 20U;

// The numbers of all "Free blocks:" (or "Free inodes:") lists.
std::set<uint64_t> FreeAccordingToDumpe2fs(const std::vector<uint8_t>& image, const std::string& label) {
  const test_support::TempFile file(image);
  const std::string dump = test_support::MustRun("dumpe2fs " + file.path() + " 2>/dev/null");
  std::set<uint64_t> numbers;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(dump, '\n'))) {
    const size_t at = line.find("  " + label + ": ");
    if (at != 0) continue;
    for (const std::string& part :
         std::vector<std::string>(absl::StrSplit(line.substr(label.size() + 4), ", ", absl::SkipEmpty()))) {
      const std::vector<std::string> ends = absl::StrSplit(part, '-');
      uint64_t first = 0;
      uint64_t last = 0;
      if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) continue;
      for (uint64_t number = first; number <= last; ++number) numbers.insert(number);
    }
  }
  return numbers;
}

class GroupTableTest : public testing::TestWithParam<test_support::ImageKind> {};

TEST_P(GroupTableTest, BitmapsAgreeWithDumpe2fs) {
  const std::vector<uint8_t> image = MakeImage(40 * kMiB, GetParam().options);
  VolumeRig rig(image, false);
  const Geometry& geometry = rig.context.geometry;
  GroupTable& groups = *rig.context.groups;
  const std::set<uint64_t> free_blocks = FreeAccordingToDumpe2fs(image, "Free blocks");
  const std::set<uint64_t> free_inodes = FreeAccordingToDumpe2fs(image, "Free inodes");
  EXPECT_EQ(groups.initial_free_blocks(), free_blocks.size());
  EXPECT_EQ(groups.initial_free_inodes(), free_inodes.size());
  for (GroupNumber group = 0; group < geometry.group_count; ++group) {
    MutexLock lock(groups.group(group).mutex);
    const absl::StatusOr<GroupInfo> info = groups.Read(group);
    ASSERT_TRUE(info.ok());
    const absl::StatusOr<BufferRef> blocks = groups.BlockBitmap(group, *info);
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    const absl::StatusOr<BufferRef> inodes = groups.InodeBitmap(group, *info);
    ASSERT_TRUE(inodes.ok()) << inodes.status();
    const BlockNumber first = geometry.FirstBlockOfGroup(group);
    for (uint32_t bit = 0; bit < geometry.BlocksInGroup(group); ++bit) {
      ASSERT_EQ(TestBit((*blocks)->data(), bit), free_blocks.count(first + bit) == 0) << group << ":" << bit;
      if (!TestBit((*blocks)->data(), bit)) {
        ASSERT_FALSE(groups.IsSystemBlock(first + bit, 1)) << first + bit;
      }
    }
    for (uint32_t bit = 0; bit < geometry.inodes_per_group; ++bit) {
      const uint64_t inode = uint64_t{group} * geometry.inodes_per_group + bit + 1;
      ASSERT_EQ(TestBit((*inodes)->data(), bit), free_inodes.count(inode) == 0) << inode;
    }
    for (uint32_t bit = geometry.BlocksInGroup(group); bit < geometry.block_bytes * 8; ++bit) {
      ASSERT_TRUE(TestBit((*blocks)->data(), bit)) << "padding of group " << group;
    }
    if (!geometry.metadata_csum()) continue;
    const uint32_t mask = geometry.has_64bit() ? ~0U : 0xFFFFU;
    if ((info->flags & kGroupBlockUninit) == 0) {
      EXPECT_EQ(BlockBitmapChecksum(geometry, (*blocks)->data()) & mask, info->block_bitmap_checksum);
    }
    if ((info->flags & kGroupInodeUninit) == 0) {
      EXPECT_EQ(InodeBitmapChecksum(geometry, (*inodes)->data()) & mask, info->inode_bitmap_checksum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Images, GroupTableTest, testing::ValuesIn(test_support::kImageKinds), test_support::KindName);

TEST(GroupTableDamageTest, DescriptorAndBitmap) {
  const std::vector<uint8_t> image = MakeImage(16 * kMiB, "-t ext4 -b 1024");
  std::vector<uint8_t> damaged = image;
  damaged[2048 + 64 + 12] ^= 1;  // free blocks of group 1
  EXPECT_THROW(VolumeRig rig(damaged, false), std::runtime_error);

  VolumeRig sound(image, false);
  const GroupInfo info = *sound.context.groups->Read(0);
  damaged = image;
  damaged[info.block_bitmap * 1024 + 900] ^= 1;
  damaged[info.inode_bitmap * 1024 + 200] ^= 1;
  VolumeRig rig(damaged, true);
  MutexLock lock(rig.context.groups->group(0).mutex);
  const absl::Status blocks = rig.context.groups->BlockBitmap(0, info).status();
  EXPECT_EQ(StatusToErrno(blocks), EUCLEAN);
  EXPECT_THAT(std::string(blocks.message()), testing::HasSubstr("group 0"));
  EXPECT_EQ(StatusToErrno(rig.context.groups->InodeBitmap(0, info).status()), EUCLEAN);
}

TEST(GroupTableDamageTest, CorruptGroupIsReportedOnceThenPassedOver) {
  const std::vector<uint8_t> image = MakeImage(32 * kMiB, "-t ext4 -b 1024");
  std::vector<uint8_t> damaged = image;
  {
    VolumeRig sound(image, false);
    damaged[sound.context.groups->Read(0)->block_bitmap * 1024 + 900] ^= 1;
  }
  VolumeRig rig(damaged);
  EXPECT_EQ(StatusToErrno(rig.context.blocks->Reserve(5000, 10, false).status()), EUCLEAN);
  const absl::StatusOr<BlockRange> range = rig.context.blocks->Reserve(5000, 10, false);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_NE(rig.context.geometry.GroupOfBlock(range->start), 0U);
}

}  // namespace
}  // namespace elidefs::core
