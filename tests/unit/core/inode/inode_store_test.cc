#include "core/inode/inode_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/alloc/inode_allocator.h"
#include "core/inode/time_codec.h"
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

TEST(TimeCodecTest, RoundTrips) {
  for (const int64_t seconds : {int64_t{0}, int64_t{-1}, kMinSeconds, kMaxSecondsPlain, kMaxSecondsPlain + 1,
                                int64_t{1} << 32, (int64_t{1} << 33) + 5, kMaxSecondsExtra}) {
    const EncodedTime encoded = EncodeTime({seconds, 987654321}, true);
    const Timestamp decoded = DecodeTime(encoded.seconds_low, encoded.extra);
    EXPECT_EQ(decoded.seconds, seconds);
    EXPECT_EQ(decoded.nanoseconds, 987654321U);
  }
  EXPECT_EQ(DecodeTime(EncodeTime({kMaxSecondsExtra + 9, 0}, true).seconds_low, 3).seconds, kMaxSecondsExtra);
  EXPECT_EQ(DecodeTime(EncodeTime({kMinSeconds - 9, 0}, true).seconds_low, 0).seconds, kMinSeconds);
  EXPECT_EQ(EncodeTime({kMaxSecondsPlain + 9, 7}, false).seconds_low, 0x7FFFFFFFU);
  EXPECT_EQ(EncodeTime({5, 7}, false).extra, 0U);
  // The published table: 0x80000000 with epoch 1 is 2038-01-19 03:14:08.
  EXPECT_EQ(DecodeTime(0x80000000U, 1).seconds, 0x80000000LL);
  EXPECT_EQ(DecodeTime(0, ~0U).nanoseconds, kMaxNanoseconds);
}

class InodeStoreTest : public testing::TestWithParam<test_support::ImageKind> {};

TEST_P(InodeStoreTest, WritingUnchangedInodesChangesNothing) {
  VolumeRig rig(MakeImage(24 * kMiB, GetParam().options));
  const std::vector<uint8_t> before = rig.image();
  for (InodeNumber number = 1; number <= rig.context.geometry.first_inode + 1; ++number) {
    const absl::StatusOr<InodeRef> inode = rig.context.inode_store->Read(number, false);
    if (!inode.ok()) {
      EXPECT_EQ(StatusToErrno(inode.status()), ENOENT) << inode.status();
      continue;
    }
    Handle handle = rig.Start(1);
    MutexLock lock((*inode)->mutex);
    const std::vector<uint8_t> slot(
        (*inode)->table_buffer->data() + (*inode)->table_offset_bytes,
        (*inode)->table_buffer->data() + (*inode)->table_offset_bytes + rig.context.geometry.inode_bytes);
    ASSERT_TRUE(rig.context.inode_store->Write(handle, **inode).ok());
    EXPECT_EQ(std::memcmp(slot.data(), (*inode)->table_buffer->data() + (*inode)->table_offset_bytes, slot.size()), 0)
        << "inode " << number;
  }
}

TEST_P(InodeStoreTest, DebugfsSeesWhatWasWritten) {
  VolumeRig rig(MakeImage(24 * kMiB, GetParam().options));
  const bool extra = rig.context.geometry.inode_bytes > kGoodOldInodeBytes;
  InodeNumber number = 0;
  {
    Handle handle = rig.Start(16);
    bool uninitialized = false;
    number = *rig.context.inodes->Allocate(handle, kRootInode, false, &uninitialized);
    const InodeRef inode = *rig.context.inode_store->Create(number, uninitialized);
    MutexLock lock(inode->mutex);
    EXPECT_GT(inode->crtime.seconds, 0);
    inode->mode = 0100640;
    inode->uid = 0x12345;
    inode->gid = 0x54321;
    inode->links = 3;
    inode->disk_size_bytes = 0x1234567890ULL;
    inode->blocks_512 = 0;
    inode->flags = kInodeExtents;
    inode->generation = 77;
    inode->mtime = {extra ? 5000000000 : 2000000000, 123456789};
    ASSERT_TRUE(rig.context.inode_store->Write(handle, *inode).ok());
  }
  // What was written is what is read back.
  const InodeRef again = *rig.context.inode_store->Read(number, false);
  {
    MutexLock lock(again->mutex);
    EXPECT_EQ(again->uid, 0x12345U);
    EXPECT_EQ(again->gid, 0x54321U);
    EXPECT_EQ(again->size_bytes, 0x1234567890ULL);
    EXPECT_EQ(again->mtime.seconds, extra ? 5000000000 : 2000000000);
    EXPECT_EQ(again->mtime.nanoseconds, extra ? 123456789U : 0U);
    EXPECT_EQ(again->links, 3U);
  }
  const test_support::TempFile file(rig.Finish());
  const std::string stat = test_support::MustRun(absl::StrCat("TZ=UTC debugfs -R 'stat <", number, ">' ", file.path()));
  EXPECT_THAT(stat, HasSubstr("Mode:  0640"));
  EXPECT_THAT(stat, HasSubstr("Generation: 77"));
  EXPECT_THAT(stat, HasSubstr("User: 74565   Group: 344865"));
  EXPECT_THAT(stat, HasSubstr("Size: 78187493520"));
  EXPECT_THAT(stat, HasSubstr("Links: 3"));
  if (extra) {
    EXPECT_THAT(stat, HasSubstr("Fri Jun 11 08:53:20 2128"));
    EXPECT_THAT(stat, HasSubstr("Size of extra inode fields: 32"));
  }
}

INSTANTIATE_TEST_SUITE_P(Images, InodeStoreTest, testing::ValuesIn(test_support::kImageKinds), test_support::KindName);

class InodeDamageTest : public testing::Test {
 protected:
  // The image with one file, "/f", inode 12.
  InodeDamageTest() {
    const test_support::TempDirectory directory;
    test_support::WriteWholeFile(directory.File("source"), std::vector<uint8_t>(5000, 'x'));
    image_ =
        ChangeImage(MakeImage(16 * kMiB, "-t ext4 -b 1024"), absl::StrCat("write ", directory.File("source"), " f\n"));
  }
  absl::Status ReadAfter(const std::string& debugfs_commands, bool allow_orphan = false) {
    VolumeRig rig(ChangeImage(image_, debugfs_commands), false);
    return rig.context.inode_store->Read(12, allow_orphan).status();
  }
  std::vector<uint8_t> image_;
};

TEST_F(InodeDamageTest, RefusalsAndDamage) {
  EXPECT_TRUE(ReadAfter("sif f mode 0100600").ok());
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f links_count 0")), ENOENT);
  EXPECT_TRUE(ReadAfter("sif f links_count 0", true).ok());
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f mode 0", true)), ENOENT);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f mode 0130000")), EUCLEAN);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f flags 0x10080000")), EOPNOTSUPP);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f flags 0x80800")), EOPNOTSUPP);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f size 0x7000000000000000")), EUCLEAN);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f file_acl 3")), EUCLEAN);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f file_acl 999999")), EUCLEAN);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f extra_isize 200")), EUCLEAN);
  EXPECT_EQ(StatusToErrno(ReadAfter("sif f extra_isize 31")), EUCLEAN);
}

TEST_F(InodeDamageTest, ChecksumAndRange) {
  uint32_t offset = 0;
  BlockNumber block = 0;
  {
    VolumeRig rig(image_, false);
    block = *rig.context.groups->InodeTableBlock(12, &offset);
    EXPECT_EQ(StatusToErrno(rig.context.inode_store->Read(0, false).status()), EUCLEAN);
    EXPECT_EQ(StatusToErrno(rig.context.inode_store->Read(1000000, false).status()), EUCLEAN);
    EXPECT_EQ(StatusToErrno(rig.context.inode_store->Read(2000, false).status()), ENOENT);
  }
  image_[block * 1024 + offset + 4] ^= 1;
  VolumeRig rig(image_, false);
  uint32_t reports = 0;
  rig.context.on_corruption = [&](absl::Status status) {
    ++reports;
    return status;
  };
  const absl::Status status = rig.context.inode_store->Read(12, false).status();
  EXPECT_EQ(StatusToErrno(status), EUCLEAN);
  EXPECT_THAT(std::string(status.message()), HasSubstr("inode 12"));
  EXPECT_EQ(reports, 1U);
}

// i_blocks: 32 bits of 512-byte units, then 48, then 48 bits of blocks.
TEST_F(InodeDamageTest, BlockCountUnits) {
  VolumeRig rig(image_);
  const InodeRef inode = *rig.context.inode_store->Read(12, false);
  Handle handle = rig.Start(1);
  for (const uint64_t blocks : {uint64_t{10}, uint64_t{1} << 33U, uint64_t{1} << 48U}) {
    {
      MutexLock lock(inode->mutex);
      inode->blocks_512 = blocks;
      ASSERT_TRUE(rig.context.inode_store->Write(handle, *inode).ok());
      EXPECT_EQ((inode->flags & kInodeHugeFile) != 0, blocks > 0xFFFFFFFFFFFFULL);
    }
    const InodeRef again = *rig.context.inode_store->Read(12, false);
    MutexLock lock(again->mutex);
    EXPECT_EQ(again->blocks_512, blocks);
  }
  MutexLock lock(inode->mutex);
  inode->blocks_512 = uint64_t{1} << 51U;
  EXPECT_EQ(StatusToErrno(rig.context.inode_store->Write(handle, *inode)), EFBIG);
}

TEST_F(InodeDamageTest, GenerationGrowsWithEveryUse) {
  VolumeRig rig(image_);
  Handle handle = rig.Start(16);
  uint32_t before = 0;
  {
    const InodeRef inode = *rig.context.inode_store->Read(12, false);
    MutexLock lock(inode->mutex);
    before = inode->generation;
  }
  ASSERT_TRUE(rig.context.inodes->Free(handle, 12, false).ok());
  bool uninitialized = true;
  ASSERT_EQ(*rig.context.inodes->Allocate(handle, 2, false, &uninitialized), 12U);
  EXPECT_FALSE(uninitialized);
  const InodeRef inode = *rig.context.inode_store->Create(12, uninitialized);
  MutexLock lock(inode->mutex);
  EXPECT_EQ(inode->generation, before + 1);
}

// A lazily made volume's inode table holds whatever was on the device: none of it may show up in a new inode.
TEST(UninitializedTableTest, LeftoversNeverShow) {
  std::vector<uint8_t> image = MakeImage(24 * kMiB, "-t ext4 -b 1024 -E lazy_itable_init=1");
  BlockNumber table = 0;
  uint32_t per_group = 0;
  {
    VolumeRig rig(image, false);
    table = rig.context.groups->Read(1)->inode_table;
    per_group = rig.context.geometry.inodes_per_group;
    std::fill_n(image.begin() + static_cast<std::ptrdiff_t>(table * 1024),
                rig.context.geometry.InodeTableBlocksPerGroup() * 1024, 0xA5);
  }
  VolumeRig rig(image);
  EXPECT_EQ(StatusToErrno(rig.context.inode_store->Read(per_group + 1, true).status()), ENOENT);
  for (uint32_t i = 0; i < 10; ++i) {
    Handle handle = rig.Start(8);
    bool uninitialized = false;
    const InodeNumber number = *rig.context.inodes->Allocate(handle, per_group + 1, false, &uninitialized);
    EXPECT_EQ(number, per_group + 1 + i);
    EXPECT_TRUE(uninitialized);
    const InodeRef inode = *rig.context.inode_store->Create(number, uninitialized);
    MutexLock lock(inode->mutex);
    inode->mode = 0100600;
    inode->links = 1;
    ASSERT_TRUE(rig.context.inode_store->Write(handle, *inode).ok());
    const uint8_t* slot = inode->table_buffer->data() + inode->table_offset_bytes;
    for (uint32_t byte = sizeof(RawInode); byte < rig.context.geometry.inode_bytes; ++byte) EXPECT_EQ(slot[byte], 0);
  }
  EXPECT_EQ(StatusToErrno(rig.context.inode_store->Read(per_group + 11, true).status()), ENOENT);
}

}  // namespace
}  // namespace elidefs::core
