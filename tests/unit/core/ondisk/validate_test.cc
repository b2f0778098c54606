#include "core/ondisk/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/group_table.h"
#include "core/ondisk/checksums.h"
#include "tests/unit/core/support/image_matrix.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/support/volume_rig.h"

namespace elidefs::core {
namespace {

using test_support::ChangeImage;
using test_support::MakeImage;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20U;

const std::vector<uint8_t>& DefaultImage() {
  static const auto* image = new std::vector<uint8_t>(MakeImage(16 * kMiB, "-t ext4 -b 1024"));
  return *image;
}

class AcceptedTest : public testing::TestWithParam<test_support::ImageKind> {};

TEST_P(AcceptedTest, ReadWrite) {
  const std::vector<uint8_t> image = MakeImage(24 * kMiB, GetParam().options);
  const absl::StatusOr<Geometry> geometry = ValidateImage(image, true);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  EXPECT_EQ(geometry->block_count * geometry->block_bytes, image.size());
  EXPECT_EQ(geometry->inode_count, geometry->group_count * geometry->inodes_per_group);
  EXPECT_EQ(uint32_t{1} << geometry->block_shift, geometry->block_bytes);
  EXPECT_TRUE(ValidateImage(image, false).ok());
}
INSTANTIATE_TEST_SUITE_P(Images, AcceptedTest, testing::ValuesIn(test_support::kImageKinds), test_support::KindName);

struct RefusedCase {
  const char* name;             // what the message must contain
  const char* mke2fs_options;   // beyond -t ext4; null: the default image
  const char* debugfs_command;  // null: none
  bool read_only_accepted;
};
void PrintTo(const RefusedCase& refused, std::ostream* out) {
  *out << refused.name;
}

class RefusedTest : public testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedTest, NamesFeatureAndRemedy) {
  std::vector<uint8_t> image = GetParam().mke2fs_options == nullptr
                                   ? DefaultImage()
                                   : MakeImage(16 * kMiB, absl::StrCat("-t ext4 -b 1024 ", GetParam().mke2fs_options));
  if (GetParam().debugfs_command != nullptr) image = ChangeImage(image, GetParam().debugfs_command);
  const absl::Status read_write = ValidateImage(image, true).status();
  EXPECT_EQ(StatusToErrno(read_write), EOPNOTSUPP) << read_write;
  EXPECT_THAT(std::string(read_write.message()), HasSubstr(GetParam().name));
  EXPECT_THAT(std::string(read_write.message()), testing::ContainsRegex("tune2fs|mount|e2fsck"));
  const absl::Status read_only = ValidateImage(image, false).status();
  EXPECT_EQ(read_only.ok(), GetParam().read_only_accepted) << read_only;
  if (read_only.ok()) VolumeRig rig(image, false);  // the groups of such volumes are readable too
}

INSTANTIATE_TEST_SUITE_P(
    Features, RefusedTest,
    testing::Values(
        RefusedCase{"compression", nullptr, "feature compression", false},
        RefusedCase{"meta_bg", "-O meta_bg,^resize_inode", nullptr, false},
        RefusedCase{"mmp", "-O mmp", nullptr, false}, RefusedCase{"ea_inode", "-O ea_inode", nullptr, false},
        RefusedCase{"dirdata", nullptr, "feature dirdata", false},
        RefusedCase{"large_dir", "-O large_dir", nullptr, false},
        RefusedCase{"inline_data", "-O inline_data", nullptr, false},
        RefusedCase{"encrypt", "-O encrypt", nullptr, false}, RefusedCase{"casefold", "-O casefold", nullptr, false},
        RefusedCase{"unknown INCOMPAT bits 0x80000000", nullptr, "feature FEATURE_I31", false},
        RefusedCase{"external journal", nullptr, "ssv journal_dev 2049", false},
        RefusedCase{"has_journal", "-O ^has_journal", nullptr, true},
        RefusedCase{"extent", "-O ^extent,^64bit", nullptr, true},
        RefusedCase{"bigalloc", "-O bigalloc", nullptr, true}, RefusedCase{"quota", "-O quota", nullptr, true},
        RefusedCase{"project", "-O project,quota", nullptr, true}, RefusedCase{"verity", "-O verity", nullptr, true},
        RefusedCase{"shared_blocks", nullptr, "feature shared_blocks", true},
        RefusedCase{"read-only", nullptr, "feature read-only", true},
        RefusedCase{"uninit_bg", "-O ^metadata_csum,uninit_bg", nullptr, true},
        RefusedCase{"sparse_super2", "-O sparse_super2,^resize_inode", nullptr, true},
        RefusedCase{"unknown RO_COMPAT bits 0x40000000", nullptr, "feature FEATURE_R30", true}));

TEST(ValidateTest, JournalDevice) {
  const absl::Status status = ValidateImage(MakeImage(16 * kMiB, "-b 1024 -O journal_dev"), true).status();
  EXPECT_EQ(StatusToErrno(status), EOPNOTSUPP) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("journal_dev"));
}

TEST(ValidateTest, NotExt4) {
  const SuperBlock zero{};
  const absl::Status status = ValidateSuperBlock(zero, kMiB, 512, false).status();
  EXPECT_EQ(StatusToErrno(status), EINVAL) << status;
}

TEST(ValidateTest, DeviceSmallerThanVolume) {
  const absl::Status status = ValidateSuperBlock(SuperBlockOf(DefaultImage()), 16 * kMiB - 1024, 512, false).status();
  EXPECT_EQ(StatusToErrno(status), EINVAL) << status;
}

TEST(ValidateTest, BlockSmallerThanSector) {
  const absl::Status status = ValidateSuperBlock(SuperBlockOf(DefaultImage()), 16 * kMiB, 4096, false).status();
  EXPECT_EQ(StatusToErrno(status), EOPNOTSUPP) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("sector"));
}

TEST(ValidateTest, WrongChecksum) {
  SuperBlock super_block = SuperBlockOf(DefaultImage());
  super_block.s_volume_name[3] ^= 1;
  const absl::Status status = ValidateSuperBlock(super_block, 16 * kMiB, 512, false).status();
  EXPECT_EQ(StatusToErrno(status), EUCLEAN) << status;
}

TEST(ValidateTest, VolumeMarkedWithErrors) {
  const std::vector<uint8_t> image = ChangeImage(DefaultImage(), "ssv state 2");
  const absl::Status status = ValidateImage(image, true).status();
  EXPECT_EQ(StatusToErrno(status), EUCLEAN) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("e2fsck"));
  EXPECT_TRUE(ValidateImage(image, false).ok());
}

// Whatever a hostile superblock says, with a right checksum at that: a refusal or a geometry that the group table can
// work with, never a crash.
TEST(ValidateTest, RandomBitFlips) {
  const bool sanitized =
#ifdef ELIDEFS_SANITIZED
      true;
#else
      false;
#endif
  std::mt19937 random(20240611);
  uint32_t accepted = 0;
  for (const char* options : {"-t ext4 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum"}) {
    const std::vector<uint8_t> image = MakeImage(4 * kMiB, options);
    for (uint32_t round = 0; round < (sanitized ? 1000 : 4000); ++round) {
      // The first 0x180 bytes hold the geometry; the descriptors follow at 2048.
      std::vector<uint8_t> head(image.begin(), image.begin() + 4096);
      const uint32_t flips = 1 + random() % 3;
      for (uint32_t i = 0; i < flips; ++i) {
        const size_t offset = random() % 4 == 0 ? 2048 + random() % 64 : kSuperBlockOffsetBytes + random() % 0x180;
        head[offset] ^= static_cast<uint8_t>(1U << random() % 8);
      }
      SetSuperBlockChecksum(reinterpret_cast<SuperBlock*>(head.data() + kSuperBlockOffsetBytes));
      const absl::StatusOr<Geometry> geometry =
          ValidateSuperBlock(SuperBlockOf(head), image.size(), 512, round % 2 == 0);
      // Most accepted changes touch nothing that the groups depend on.
      if (!geometry.ok() || ++accepted % 4 != 0) continue;
      std::vector<uint8_t> copy = image;
      std::copy(head.begin(), head.end(), copy.begin());
      try {
        VolumeRig rig(std::move(copy), false);
        for (GroupNumber group = 0; group < geometry->group_count; ++group) {
          MutexLock lock(rig.context.groups->group(group).mutex);
          const absl::StatusOr<GroupInfo> info = rig.context.groups->Read(group);
          ASSERT_TRUE(info.ok());
          rig.context.groups->BlockBitmap(group, *info).IgnoreError();
          rig.context.groups->InodeBitmap(group, *info).IgnoreError();
        }
        for (InodeNumber inode = 1; inode < 16; ++inode) rig.context.inode_store->Read(inode, true).IgnoreError();
      } catch (const std::runtime_error&) {
        // The rig's way to say that the groups were refused.
      }
    }
  }
  EXPECT_GT(accepted, 0U);
}

TEST(ValidateTest, RandomSuperBlocks) {
  std::mt19937_64 random(7);
  for (uint32_t round = 0; round < 20000; ++round) {
    SuperBlock super_block;
    for (size_t i = 0; i < sizeof(super_block); i += 8) {
      const uint64_t word = random() & (round % 2 == 0 ? ~0ULL : 0x0000000F0000000FULL);
      std::memcpy(reinterpret_cast<uint8_t*>(&super_block) + i, &word, 8);
    }
    super_block.s_magic = kExt4Magic;
    super_block.s_rev_level = 1;
    super_block.s_feature_incompat = super_block.s_feature_incompat & 0x22C2U;
    super_block.s_checksum_type = 1;
    SetSuperBlockChecksum(&super_block);
    ValidateSuperBlock(super_block, random() % (1ULL << 50U), 512, round % 3 == 0).IgnoreError();
  }
}

}  // namespace
}  // namespace elidefs::core
