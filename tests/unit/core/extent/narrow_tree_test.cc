// Extent trees stay as narrow and as low as e2fsck wants them, whatever the order of insertions and removals:
// Complaints() takes each remark of it as a failure. Seeded cases take ELIDEFS_SEED instead of their own seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/extent/mapping_rig.h"
#include "tests/unit/core/extent/modelled_file.h"

namespace elidefs::core::mapping_test {
namespace {

#ifdef ELIDEFS_SANITIZED
constexpr uint32_t kManyExtents = 6000;
constexpr uint32_t kExtents = 4000;
#else
constexpr uint32_t kManyExtents = 20000;
constexpr uint32_t kExtents = 8000;
#endif

uint32_t Seed(uint32_t fallback) {
  const char* text = std::getenv("ELIDEFS_SEED");
  return text == nullptr ? fallback : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

std::string Replay(uint32_t seed) {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  return absl::StrCat("replay: ELIDEFS_SEED=", seed, " core_tests --gtest_filter=", test->test_suite_name(), ".",
                      test->name());
}

// A rig with one file whose extents cannot merge unless a test wants them to.
class NarrowTree : public testing::TestWithParam<uint32_t> {
 protected:
  uint32_t block_bytes() const { return GetParam(); }
  uint32_t capacity() const { return (block_bytes() - 12) / 12; }

  // Room for so many data blocks.
  void Make(uint32_t seed, uint32_t blocks = kExtents, const std::string& options = "-J size=8") {
    const uint32_t size_mib = 14 + (blocks + blocks / 20) / (1048576 / block_bytes());
    const std::vector<uint8_t> image = OneFileImage(size_mib, absl::StrCat("-b ", block_bytes(), " -N 64 ", options));
    rig_ = std::make_unique<MappingRig>(image);
    ASSERT_TRUE(rig_->usable());
    file_ = std::make_unique<ModelledFile>(rig_.get(), InodeOfPath(image, "/file"), seed);
  }
  // Every second block, in the order of `positions`.
  void InsertAll(const std::vector<uint32_t>& positions) {
    for (const uint32_t position : positions) {
      if (!file_->Insert(2 * position, 1, /*unwritten=*/false, 0)) FAIL() << "volume too small";
    }
  }
  void Finish() {
    file_->CheckAll();
    EXPECT_EQ(Complaints(rig_->Finish()), "");
  }

  std::vector<uint32_t> Ascending(uint32_t count) const {
    std::vector<uint32_t> positions(count);
    for (uint32_t i = 0; i < count; ++i) positions[i] = i;
    return positions;
  }

  std::vector<uint32_t> Shuffled(uint32_t count, uint32_t seed) const {
    std::vector<uint32_t> positions = Ascending(count);
    std::mt19937 random(seed);
    std::shuffle(positions.begin(), positions.end(), random);
    return positions;
  }

  std::unique_ptr<MappingRig> rig_;
  std::unique_ptr<ModelledFile> file_;
};

TEST_P(NarrowTree, RandomOrder) {
  const uint32_t seed = Seed(1);
  SCOPED_TRACE(Replay(seed));
  Make(seed, kManyExtents);
  InsertAll(Shuffled(kManyExtents, seed));
  Finish();
}

// Trees that stop at every size, so that no moment of a level's life escapes the judge.
TEST_P(NarrowTree, RandomOrderOfManySizes) {
  for (uint32_t round = 0; round < 6 && !HasFailure(); ++round) {
    const uint32_t seed = Seed(100 + round);
    SCOPED_TRACE(Replay(seed));
    std::mt19937 random(seed);
    std::vector<uint32_t> positions = Ascending(random() % (8 * capacity()) + 5);
    Make(seed, static_cast<uint32_t>(positions.size()), "-J size=4");
    std::shuffle(positions.begin(), positions.end(), random);
    InsertAll(positions);
    Finish();
  }
}

TEST_P(NarrowTree, Descending) {
  Make(1, kManyExtents);
  std::vector<uint32_t> positions = Ascending(kManyExtents);
  std::reverse(positions.begin(), positions.end());
  InsertAll(positions);
  Finish();
}

TEST_P(NarrowTree, FromBothEndsInTurn) {
  Make(1);
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < kExtents / 2; ++i) {
    positions.push_back(i);
    positions.push_back(kExtents - 1 - i);
  }
  InsertAll(positions);
  Finish();
}

TEST_P(NarrowTree, BitReversedOrder) {
  constexpr uint32_t kBits = 13;
  Make(1, 1U << kBits);
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < 1U << kBits; ++i) {
    uint32_t reversed = 0;
    for (uint32_t bit = 0; bit < kBits; ++bit) reversed |= (i >> bit & 1U) << (kBits - 1 - bit);
    positions.push_back(reversed);
  }
  InsertAll(positions);
  Finish();
}

// What costs a rule that looks at neighbours most: many places that grow by turns, and places that fill one after the
// other in a tree that is full already.
TEST_P(NarrowTree, ManyPlacesByTurnsThenOneByOne) {
  Make(1);
  constexpr uint32_t kPlaces = 37;
  const uint32_t each = kExtents / 2 / kPlaces;
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < each; ++i) {
    for (uint32_t place = 0; place < kPlaces; ++place) positions.push_back(2 * (place * each + i));
  }
  for (uint32_t place = kPlaces; place-- > 0;) {
    for (uint32_t i = 0; i < each; ++i) positions.push_back(2 * (place * each + i) + 1);
  }
  InsertAll(positions);
  Finish();
}

// Full nodes as far as a window reaches: an insertion finds room nowhere near, and the level none for a split in
// halves.
TEST_P(NarrowTree, FewPlacesInAFullTree) {
  Make(1, kManyExtents + 100);
  for (uint32_t i = 0; i < kManyExtents; ++i) ASSERT_TRUE(file_->Insert(4 * i, 1, /*unwritten=*/false, 0));
  for (uint32_t place = 1; place < 40; ++place) {
    ASSERT_TRUE(file_->Insert(4 * (place * (kManyExtents / 40)) + 2, 1, /*unwritten=*/false, 0));
  }
  Finish();
}

// A journal that gives a handle little: what a level could not get it gets later.
TEST_P(NarrowTree, RandomOrderWithASmallJournal) {
  const uint32_t seed = Seed(3);
  SCOPED_TRACE(Replay(seed));
  Make(seed, kExtents, absl::StrCat("-J size=", block_bytes() / 1024));
  InsertAll(Shuffled(kExtents, seed));
  Finish();
}

// All blocks of a file in random order: extents appear, grow together and vanish.
TEST_P(NarrowTree, HolesFillUntilExtentsMerge) {
  for (const uint32_t percent : {70U, 100U}) {
    const uint32_t seed = Seed(percent);
    SCOPED_TRACE(Replay(seed));
    Make(seed, kExtents, "-J size=8 -E packed_meta_blocks=1");
    std::vector<uint32_t> order = Shuffled(kExtents, seed);
    order.resize(order.size() * percent / 100);
    // Block and position agree, so that neighbours merge; nodes lie at the other end.
    const BlockNumber base = rig_->geometry().block_count - kExtents - 10;
    for (const uint32_t logical : order) ASSERT_TRUE(file_->Insert(logical, 1, /*unwritten=*/false, base + logical));
    Finish();
  }
}

// Of three neighbours the last one goes, whose first extent then comes before those that the one before it gets: at no
// time may the keys of their parent be sealed out of order.
TEST_P(NarrowTree, TheNodeThatGoesHadTheMiddleExtent) {
  Make(1, 8000, "-J size=8 -E packed_meta_blocks=1");
  const BlockNumber base = rig_->geometry().block_count - 12 * capacity() - 10;
  const auto insert = [&](LogicalBlock logical) {
    ASSERT_TRUE(file_->Insert(logical, 1, /*unwritten=*/false, base + logical));
  };
  const uint32_t leaf_blocks = 2 * capacity();
  for (LogicalBlock logical = 0; logical < 6 * leaf_blocks; logical += 2) insert(logical);
  // Every block between two extents makes them one.
  const auto shrink = [&](uint32_t leaf, uint32_t extents) {
    for (uint32_t i = 0; i < capacity() - extents; ++i) insert(leaf * leaf_blocks + 2 * i + 1);
  };
  shrink(3, capacity() - 7);
  shrink(2, capacity() - 2);
  shrink(0, 2);
  const uint64_t nodes = file_->TreeBlocks();
  shrink(1, capacity() - 5);
  EXPECT_EQ(file_->TreeBlocks(), nodes - 1);
  Finish();
}

TEST_P(NarrowTree, InsertionsConversionsAndTruncatesMixed) {
  for (uint32_t round = 0; round < 2 && !HasFailure(); ++round) {
    const uint32_t seed = Seed(200 + round);
    SCOPED_TRACE(Replay(seed));
    Make(seed, 2 * kExtents);
    const uint32_t space = 4 * kExtents / (1 + 3 * round);
    for (uint32_t step = 0; step < kExtents && !HasFailure(); ++step) {
      const uint32_t choice = file_->Random(1000);
      const LogicalBlock logical = file_->Random(space);
      if (choice < 750) {
        const BlockNumber goal = file_->Random(3) == 0 ? file_->ContiguousGoal(logical) : 0;
        ASSERT_TRUE(file_->Insert(logical, 1 + file_->Random(5), file_->Random(2) == 0, goal));
      } else if (choice < 998) {
        file_->Convert(logical, 1 + file_->Random(3));
      } else {
        // Mostly a little at the end, so that the tree gets large.
        file_->Truncate(file_->Random(10) == 0 ? logical : space - file_->Random(space / 8));
      }
    }
    Finish();
  }
}

// A truncate cuts a tree whose spare entries lie elsewhere.
TEST_P(NarrowTree, TruncatesOfARandomTree) {
  const uint32_t seed = Seed(5);
  SCOPED_TRACE(Replay(seed));
  for (const uint32_t keep : {3U, 400U, 5001U}) {
    constexpr uint32_t kBefore = 7000;
    Make(seed, kBefore);
    std::vector<uint32_t> positions = Ascending(kBefore);
    std::mt19937 random(seed + keep);
    std::shuffle(positions.begin(), positions.end(), random);
    InsertAll(positions);
    file_->Truncate(2 * keep);
    Finish();
  }
}

class NarrowTree2k : public NarrowTree {};

TEST_P(NarrowTree2k, RandomOrder) {
  const uint32_t seed = Seed(2);
  SCOPED_TRACE(Replay(seed));
  Make(seed);
  InsertAll(Shuffled(kExtents, seed));
  Finish();
}

INSTANTIATE_TEST_SUITE_P(BlockBytes, NarrowTree2k, testing::Values(2048U));
INSTANTIATE_TEST_SUITE_P(BlockBytes, NarrowTree, testing::Values(1024U, 4096U));

TEST(NarrowTreeAppend, LeavesTheNodeBeforeAlone) {
  const std::vector<uint8_t> image = OneFileImage(64, "-b 4096 -N 64");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  ModelledFile file(&rig, InodeOfPath(image, "/file"), 1);
  for (uint32_t i = 0; i < 2 * 340; ++i) ASSERT_TRUE(file.Insert(2 * i, 1, false, 0));
  const uint64_t before = file.TreeBlocks();
  // The new leaf with its bitmap and descriptor, the data's being the same; the full leaf is not written again.
  EXPECT_LE(file.CreditsOfInsert(2 * 2 * 340), 3U);
  EXPECT_EQ(file.TreeBlocks(), before + 1);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
