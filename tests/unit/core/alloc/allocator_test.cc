#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/inode_allocator.h"
#include "core/ondisk/inode_layout.h"
#include "tests/unit/core/support/image_matrix.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/support/volume_rig.h"

namespace elidefs::core {
namespace {

using test_support::CheckImage;
using test_support::CommandResult;
using test_support::MakeImage;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20U;

const std::vector<uint8_t>& SmallImage() {
  static const auto* image = new std::vector<uint8_t>(MakeImage(40 * kMiB, "-t ext4 -b 1024 -m 5"));
  return *image;
}

// No complaint but, if any, that of the superblock's totals, which elidefs writes at unmount only.
void ExpectSound(const std::vector<uint8_t>& image) {
  CommandResult result = CheckImage(image);
  std::string rest;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("count wrong (") != std::string::npos || line == "Fix? no" || line.empty()) continue;
    rest += line + "\n";
  }
  EXPECT_THAT(rest, Not(testing::ContainsRegex("no$|no\n|invalid|differences|checksum|Unattached|WARNING")));
  EXPECT_LE(result.exit_code, 4) << result.output;
}

TEST(BlockAllocatorTest, ExactGoalThenLongestRun) {
  VolumeRig rig(SmallImage());
  BlockAllocator& blocks = *rig.context.blocks;
  const BlockNumber goal = blocks.GoalForInode(12);
  const BlockRange first = *blocks.Reserve(goal, 10, false);
  EXPECT_EQ(first.count, 10U);
  const BlockRange next = *blocks.Reserve(first.start + 10, 20, false);
  EXPECT_EQ(next.start, first.start + 10);
  EXPECT_EQ(next.count, 20U);
  // A short hole at the goal is taken as it is: the file stays in one piece.
  blocks.Unreserve({first.start + 4, 3});
  const BlockRange hole = *blocks.Reserve(first.start + 4, 8, false);
  EXPECT_EQ(hole.start, first.start + 4);
  EXPECT_EQ(hole.count, 3U);
  const BlockRange elsewhere = *blocks.Reserve(first.start, 8, false);
  EXPECT_EQ(elsewhere.count, 8U);
  EXPECT_EQ(rig.context.geometry.GroupOfBlock(elsewhere.start), rig.context.geometry.GroupOfBlock(first.start));
}

TEST(BlockAllocatorTest, EveryBlockOnceUntilFull) {
  VolumeRig rig(SmallImage());
  BlockAllocator& blocks = *rig.context.blocks;
  const uint64_t free = blocks.free_blocks();
  const uint64_t reserve = rig.context.geometry.reserved_blocks;
  ASSERT_GT(reserve, 0U);
  std::set<BlockNumber> seen;
  const auto take_all = [&](bool privileged) {
    while (true) {
      const absl::StatusOr<BlockRange> range = blocks.Reserve(0, 777, privileged);
      if (!range.ok()) return StatusToErrno(range.status());
      EXPECT_FALSE(rig.context.groups->IsSystemBlock(range->start, range->count));
      for (uint32_t i = 0; i < range->count; ++i) EXPECT_TRUE(seen.insert(range->start + i).second);
    }
  };
  EXPECT_EQ(take_all(false), ENOSPC);
  EXPECT_EQ(seen.size(), free - reserve);
  EXPECT_EQ(blocks.available_blocks(), 0U);
  EXPECT_EQ(StatusToErrno(blocks.Promise(1, false)), ENOSPC);
  EXPECT_EQ(take_all(true), ENOSPC);
  EXPECT_EQ(seen.size(), free);
  for (const BlockNumber block : seen) blocks.Unreserve({block, 1});
  EXPECT_EQ(blocks.available_blocks(), free - reserve);
  EXPECT_EQ(blocks.Reserve(0, 100, false)->count, 100U);
}

TEST(BlockAllocatorTest, PromisedSpaceIsKept) {
  VolumeRig rig(SmallImage());
  BlockAllocator& blocks = *rig.context.blocks;
  ASSERT_TRUE(blocks.Promise(2, false).ok());
  while (blocks.Reserve(0, 5000, true).ok()) {
  }
  Handle handle = rig.Start(8);
  EXPECT_EQ(StatusToErrno(blocks.AllocateMetadata(handle, 0, false).status()), ENOSPC);
  EXPECT_TRUE(blocks.AllocateMetadata(handle, 0, true).ok());
  blocks.Unpromise(1);
  EXPECT_TRUE(blocks.AllocateMetadata(handle, 0, true).ok());
  blocks.Unpromise(1);
  EXPECT_EQ(StatusToErrno(blocks.AllocateMetadata(handle, 0, false).status()), ENOSPC);
}

TEST(BlockAllocatorTest, FreedBlocksComeBackWhenDurable) {
  VolumeRig rig(SmallImage());
  BlockAllocator& blocks = *rig.context.blocks;
  const uint64_t free = blocks.free_blocks();
  const BlockRange range = *blocks.Reserve(blocks.GoalForInode(12), 50, false);
  {
    Handle handle = rig.Start(8);
    ASSERT_TRUE(blocks.Commit(handle, range).ok());
    EXPECT_EQ(blocks.free_blocks(), free - 50);
    EXPECT_EQ(StatusToErrno(blocks.Commit(handle, range)), EUCLEAN);
    ASSERT_TRUE(blocks.Free(handle, range, false).ok());
    EXPECT_EQ(StatusToErrno(blocks.Free(handle, range, false)), EUCLEAN);
    EXPECT_EQ(StatusToErrno(blocks.Free(handle, {1, 1}, false)), EUCLEAN);
    EXPECT_EQ(StatusToErrno(blocks.Free(handle, {rig.context.geometry.block_count - 1, 2}, false)), EUCLEAN);
  }
  EXPECT_EQ(blocks.free_blocks(), free);
  EXPECT_EQ(blocks.awaiting_durability_blocks(), 50U);
  EXPECT_NE(blocks.Reserve(range.start, 1, false)->start, range.start);
  rig.Commit();
  EXPECT_EQ(blocks.awaiting_durability_blocks(), 0U);
  EXPECT_EQ(blocks.Reserve(range.start, 1, false)->start, range.start);
}

TEST(BlockAllocatorTest, PlantedEarlyReuse) {
  VolumeRig rig(SmallImage());
  rig.context.planted.reuse_freed_early = true;
  BlockAllocator& blocks = *rig.context.blocks;
  const BlockRange range = *blocks.Reserve(blocks.GoalForInode(12), 5, false);
  Handle handle = rig.Start(8);
  ASSERT_TRUE(blocks.Commit(handle, range).ok());
  ASSERT_TRUE(blocks.Free(handle, range, false).ok());
  EXPECT_EQ(blocks.Reserve(range.start, 1, false)->start, range.start);
}

TEST(BlockAllocatorTest, ThreadsNeverShareABlock) {
  VolumeRig rig(SmallImage());
  std::vector<std::vector<BlockRange>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&] {
      BlockNumber goal = rig.context.blocks->GoalForInode(12);
      for (uint32_t i = 0; i < 400; ++i) {
        const absl::StatusOr<BlockRange> range = rig.context.blocks->Reserve(goal, 1 + i % 9, false);
        if (!range.ok()) break;
        goal = range->start + range->count;
        if (i % 3 == 0) {
          rig.context.blocks->Unreserve(*range);
          continue;
        }
        mine.push_back(*range);
        Handle handle = rig.Start(4);
        EXPECT_TRUE(rig.context.blocks->Commit(handle, *range).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<BlockNumber> seen;
  for (const auto& mine : taken) {
    for (const BlockRange& range : mine) {
      for (uint32_t i = 0; i < range.count; ++i) EXPECT_TRUE(seen.insert(range.start + i).second);
    }
  }
}

class AllocatorImageTest : public testing::TestWithParam<test_support::ImageKind> {};

// Files made from the allocators and the inode store alone, named by debugfs, are what e2fsck expects to find.
TEST_P(AllocatorImageTest, E2fsckAcceptsWhatWasAllocated) {
  VolumeRig rig(MakeImage(40 * kMiB, GetParam().options));
  const Geometry& geometry = rig.context.geometry;
  std::string links;
  for (uint32_t i = 0; i < 30; ++i) {
    Handle handle = rig.Start(32);
    bool uninitialized = false;
    // Spread over the groups, so that uninitialised ones are touched.
    const InodeNumber parent = (i * 7 % geometry.group_count) * geometry.inodes_per_group + 2;
    const absl::StatusOr<InodeNumber> number = rig.context.inodes->Allocate(handle, parent, false, &uninitialized);
    ASSERT_TRUE(number.ok()) << number.status();
    EXPECT_TRUE(*rig.context.inodes->IsAllocated(*number));
    const absl::StatusOr<InodeRef> inode = rig.context.inode_store->Create(*number, uninitialized);
    ASSERT_TRUE(inode.ok()) << inode.status();
    const BlockRange range =
        *rig.context.blocks->Reserve(rig.context.blocks->GoalForInode(*number), 1 + i * 13 % 100, true);
    ASSERT_TRUE(rig.context.blocks->Commit(handle, range).ok());
    MutexLock lock((*inode)->mutex);
    (*inode)->mode = 0100644;
    (*inode)->links = 1;
    (*inode)->flags = kInodeExtents;
    (*inode)->disk_size_bytes = uint64_t{range.count} * geometry.block_bytes;
    (*inode)->blocks_512 = uint64_t{range.count} * geometry.block_bytes / 512;
    auto* header = reinterpret_cast<ExtentHeader*>((*inode)->block_area.data());
    header->eh_magic = kExtentMagic;
    header->eh_entries = 1;
    header->eh_max = 4;
    auto* extent = reinterpret_cast<ExtentLeaf*>(header + 1);
    extent->ee_len = static_cast<uint16_t>(range.count);
    extent->ee_start_lo = static_cast<uint32_t>(range.start);
    ASSERT_TRUE(rig.context.inode_store->Write(handle, **inode).ok());
    absl::StrAppend(&links, "ln <", *number, "> /file", i, "\n");
  }
  const std::vector<uint8_t> image = rig.Finish();
  ExpectSound(test_support::ChangeImage(image, links));
  EXPECT_THAT(CheckImage(image).output, HasSubstr("Unattached inode"));
}

TEST_P(AllocatorImageTest, EverythingFreedAgainLeavesNoTrace) {
  VolumeRig rig(MakeImage(40 * kMiB, GetParam().options));
  std::vector<InodeNumber> inodes;
  std::vector<BlockRange> ranges;
  for (uint32_t i = 0; i < 40; ++i) {
    Handle handle = rig.Start(16);
    bool uninitialized = false;
    inodes.push_back(*rig.context.inodes->Allocate(handle, kRootInode, i % 2 == 0, &uninitialized));
    ranges.push_back(*rig.context.blocks->Reserve(i * 1000, 20, true));
    ASSERT_TRUE(rig.context.blocks->Commit(handle, ranges.back()).ok());
  }
  EXPECT_EQ(std::set<InodeNumber>(inodes.begin(), inodes.end()).size(), inodes.size());
  for (uint32_t i = 0; i < inodes.size(); ++i) {
    Handle handle = rig.Start(32);
    ASSERT_TRUE(rig.context.inodes->Free(handle, inodes[i], i % 2 == 0).ok());
    EXPECT_FALSE(*rig.context.inodes->IsAllocated(inodes[i]));
    EXPECT_EQ(StatusToErrno(rig.context.inodes->Free(handle, inodes[i], false)), EUCLEAN);
    ASSERT_TRUE(rig.context.blocks->Free(handle, ranges[i], i % 2 == 0).ok());
  }
  rig.Commit();
  ExpectSound(rig.Finish());
}

INSTANTIATE_TEST_SUITE_P(Images, AllocatorImageTest, testing::ValuesIn(test_support::kImageKinds),
                         test_support::KindName);

TEST(InodeAllocatorTest, TopDirectoriesSpreadFilesStay) {
  VolumeRig rig(MakeImage(64 * kMiB, "-t ext4 -b 1024 -G 1"));
  std::set<GroupNumber> groups;
  Handle handle = rig.Start(64);
  bool uninitialized = false;
  for (uint32_t i = 0; i < 8; ++i) {
    const InodeNumber inode = *rig.context.inodes->Allocate(handle, kRootInode, true, &uninitialized);
    groups.insert(rig.context.geometry.GroupOfInode(inode));
    const InodeNumber file = *rig.context.inodes->Allocate(handle, inode, false, &uninitialized);
    EXPECT_EQ(rig.context.geometry.GroupOfInode(file), rig.context.geometry.GroupOfInode(inode));
  }
  EXPECT_GE(groups.size(), 3U);
}

TEST(InodeAllocatorTest, AllInodesThenNoSpace) {
  VolumeRig rig(MakeImage(16 * kMiB, "-t ext4 -b 1024 -N 128"));
  std::set<InodeNumber> seen;
  const uint64_t free = rig.context.inodes->free_inodes();
  while (true) {
    Handle handle = rig.Start(InodeAllocator::kCredits);
    bool uninitialized = false;
    const absl::StatusOr<InodeNumber> inode = rig.context.inodes->Allocate(handle, 2, false, &uninitialized);
    if (!inode.ok()) {
      EXPECT_EQ(StatusToErrno(inode.status()), ENOSPC);
      break;
    }
    EXPECT_GE(*inode, rig.context.geometry.first_inode);
    EXPECT_TRUE(seen.insert(*inode).second);
  }
  EXPECT_EQ(seen.size(), free);
  EXPECT_EQ(StatusToErrno(rig.context.inodes->IsAllocated(100000).status()), EUCLEAN);
}

}  // namespace
}  // namespace elidefs::core
