// Damaged extent trees: with checksums every flipped bit of a node is found; without, and in the root, nothing crashes.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_node.h"
#include "core/extent/extent_tree.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {
namespace {

// A file of 400 separate extents: a tree of depth 2.
std::vector<uint8_t> DeepFileImage(const std::string& options, std::vector<BlockNumber>* nodes) {
  const std::vector<uint8_t> image =
      MakeMappingImage(4, absl::StrCat("-b 1024 -J size=1 -N 64 ", options), "write /dev/null file\n");
  MappingRig rig(image);
  const InodeRef inode = rig.Load(InodeOfPath(image, "/file"));
  {
    MutexLock lock(inode->mutex);
    ExtentTree tree(&rig.context(), inode.get());
    for (uint32_t i = 0; i < 400; ++i) {
      Handle handle = rig.Start(tree.InsertCredits() + 3);
      const auto range = rig.context().blocks->Reserve(0, 1, true);
      EXPECT_TRUE(range.ok());
      EXPECT_TRUE(rig.context().blocks->Commit(handle, *range).ok());
      EXPECT_TRUE(tree.Insert(handle, 2 * i, range->start, 1, i % 2 == 0, false).ok());
      inode->size_bytes = uint64_t{2 * i + 1} * 1024;
      rig.Store(handle, *inode);
    }
    const ExtentOwner owner = MakeExtentOwner(&rig.context(), *inode);
    for (uint32_t i = 0; i < 800; i += 100) {
      const auto path = DescendExtents(owner, i);
      EXPECT_TRUE(path.ok());
      EXPECT_EQ(path->levels.size(), 3U);
      for (size_t level = 1; level < path->levels.size(); ++level) nodes->push_back(path->levels[level].block());
    }
  }
  std::vector<uint8_t> finished = rig.Finish();
  EXPECT_EQ(Complaints(finished), "");
  return finished;
}

// Uses the file in every way. Returns whether damage was reported.
bool UseDamaged(MappingRig& rig, const InodeRef& inode, std::mt19937& random) {
  bool reported = false;
  const auto note = [&](const absl::Status& status) {
    const int error = StatusToErrno(status);
    EXPECT_TRUE(error == 0 || error == EUCLEAN || error == EEXIST || error == EINVAL || error == ENOSPC) << status;
    if (error == EUCLEAN) {
      reported = true;
      const bool names_place =
          status.message().find("inode") != std::string::npos || status.message().find("block") != std::string::npos;
      EXPECT_TRUE(names_place) << status;
    }
  };
  MutexLock lock(inode->mutex);
  ExtentTree tree(&rig.context(), inode.get());
  uint32_t visited = 0;
  note(tree.ForEach(0, [&](const Mapping& mapping) {
    EXPECT_TRUE(rig.geometry().IsDataBlockValid(mapping.physical, mapping.length));
    return ++visited < 100000;
  }));
  EXPECT_LT(visited, 100000U);
  for (int i = 0; i < 20; ++i) note(tree.Lookup(random() % 900).status());
  {
    Handle handle = rig.Start(60);
    note(tree.ConvertToWritten(handle, random() % 900, 1, false));
    const auto range = rig.context().blocks->Reserve(0, 1, true);
    EXPECT_TRUE(range.ok());
    note(tree.Insert(handle, 2 * (random() % 400) + 1, range->start, 1, false, false));
  }
  for (int rounds = 0; rounds < 1000; ++rounds) {
    Handle handle = rig.Start(ExtentTree::kTruncateCredits);
    const auto done = tree.TruncateFrom(handle, 3);
    note(done.status());
    if (!done.ok() || *done) return reported;
  }
  ADD_FAILURE() << "truncation does not end";
  return reported;
}

TEST(HostileExtents, FlippedBitsInNodesWithChecksumsAreAlwaysReported) {
  std::vector<BlockNumber> nodes;
  const std::vector<uint8_t> image = DeepFileImage("", &nodes);
  const InodeNumber number = InodeOfPath(image, "/file");
  std::mt19937 random(21);
  for (int round = 0; round < kHostileRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 21, round ", round));
    std::vector<uint8_t> damaged = image;
    damaged[nodes[random() % nodes.size()] * 1024 + random() % 1024] ^= static_cast<uint8_t>(1U << random() % 8);
    MappingRig rig(damaged);
    EXPECT_TRUE(UseDamaged(rig, rig.Load(number), random));
  }
}

TEST(HostileExtents, FlippedBitsWithoutChecksumsNeverCrash) {
  std::vector<BlockNumber> nodes;
  const std::vector<uint8_t> image = DeepFileImage("-O ^metadata_csum", &nodes);
  const InodeNumber number = InodeOfPath(image, "/file");
  std::mt19937 random(22);
  uint32_t reported = 0;
  for (int round = 0; round < kHostileRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 22, round ", round));
    std::vector<uint8_t> damaged = image;
    for (int flips = 0; flips <= round % 10; ++flips) {
      // Mostly headers and first entries, where damage tells most.
      const uint32_t offset = random() % (flips % 2 == 0 ? 1024 : 36);
      damaged[nodes[random() % nodes.size()] * 1024 + offset] ^= static_cast<uint8_t>(1U << random() % 8);
    }
    MappingRig rig(damaged);
    reported += UseDamaged(rig, rig.Load(number), random) ? 1 : 0;
  }
  EXPECT_GT(reported, kHostileRounds / 4U);
}

TEST(HostileExtents, DamagedRootsNeverCrash) {
  std::vector<BlockNumber> nodes;
  const std::vector<uint8_t> image = DeepFileImage("", &nodes);
  const InodeNumber number = InodeOfPath(image, "/file");
  std::mt19937 random(23);
  uint32_t reported = 0;
  for (int round = 0; round < kHostileRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 23, round ", round));
    MappingRig rig(image);
    const InodeRef inode = rig.Load(number);
    {
      MutexLock lock(inode->mutex);
      for (int flips = 0; flips <= round % 5; ++flips) {
        inode->block_area[random() % 36] ^= static_cast<uint8_t>(1U << random() % 8);
      }
    }
    reported += UseDamaged(rig, inode, random) ? 1 : 0;
  }
  EXPECT_GT(reported, kHostileRounds / 4U);
}

TEST(HostileExtents, ANodeThatIsAnotherFilesOrItsOwnParentIsRefused) {
  std::vector<BlockNumber> nodes;
  const std::vector<uint8_t> image = DeepFileImage("-O ^metadata_csum", &nodes);
  std::vector<uint8_t> damaged = image;
  // The index node below the root now points at itself.
  auto* index = reinterpret_cast<ExtentIndex*>(damaged.data() + nodes[0] * 1024 + sizeof(ExtentHeader));
  index->ei_leaf_lo = static_cast<uint32_t>(nodes[0]);
  MappingRig rig(damaged);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/file"));
  MutexLock lock(inode->mutex);
  ExtentTree tree(&rig.context(), inode.get());
  EXPECT_EQ(StatusToErrno(tree.Lookup(0).status()), EUCLEAN);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
