// Every checksum that we compute equals what mke2fs, debugfs and e2fsck wrote: setting it again changes nothing.
#include "core/ondisk/checksums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/image_matrix.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/support/volume_rig.h"

namespace elidefs::core {
namespace {

using test_support::MustRun;
using test_support::TempDirectory;

// A volume with an indexed directory, a file with extent blocks and an attribute block.
std::vector<uint8_t> MakePopulatedImage(const std::string& options) {
  const TempDirectory directory;
  std::filesystem::create_directories(directory.File("tree/many"));
  for (uint32_t i = 0; i < 400; ++i) {
    const std::ofstream empty(directory.File(absl::StrCat("tree/many/a_rather_long_file_name_", i)));
  }
  {
    std::ofstream holes(directory.File("tree/holes"), std::ios::binary);
    for (uint32_t i = 0; i < 300; ++i) holes.seekp(i * 8192).put('x');
    std::ofstream value(directory.File("value"));
    for (uint32_t i = 0; i < 90; ++i) value << "value" << i;
  }
  const std::string image = directory.File("image");
  MustRun(absl::StrCat("truncate -s 48M ", image, " && mke2fs -F -q ", options, " -d ", directory.File("tree"), " ",
                       image));
  MustRun(absl::StrCat("debugfs -w -R 'ea_set -f ", directory.File("value"), " /holes user.value' ", image));
  test_support::RunCommand("e2fsck -fyD " + image);
  return test_support::ReadWholeFile(image);
}

uint64_t NumberFrom(const std::string& command) {
  std::istringstream text(MustRun(command));
  uint64_t number = 0;
  text >> number;
  return number;
}

class ChecksumsTest : public testing::TestWithParam<test_support::ImageKind> {
 protected:
  void SetUp() override {
    image_ = MakePopulatedImage(GetParam().options);
    absl::StatusOr<Geometry> geometry = ValidateImage(image_, true);
    ASSERT_TRUE(geometry.ok()) << geometry.status();
    geometry_ = *geometry;
    path_ = directory_.File("image");
    test_support::WriteWholeFile(path_, image_);
  }
  uint8_t* Block(BlockNumber block) { return image_.data() + block * geometry_.block_bytes; }
  BlockNumber BlockOfFile(const std::string& file, uint32_t logical) {
    return NumberFrom(absl::StrCat("debugfs -R 'bmap ", file, " ", logical, "' ", path_, " 2>/dev/null"));
  }
  InodeNumber InodeOf(const std::string& file) {
    const std::string text = MustRun(absl::StrCat("debugfs -R 'stat ", file, "' ", path_, " 2>/dev/null"));
    return static_cast<InodeNumber>(std::strtoul(text.c_str() + text.find("Inode: ") + 7, nullptr, 10));
  }
  uint32_t SeedOf(const std::string& file) {
    const std::string text = MustRun(absl::StrCat("debugfs -R 'stat ", file, "' ", path_, " 2>/dev/null"));
    const auto generation = std::strtoul(text.c_str() + text.find("Generation: ") + 12, nullptr, 10);
    return InodeChecksumSeed(geometry_, InodeOf(file), static_cast<uint32_t>(generation));
  }
  // `set` must leave the pristine structure alone; with checksums, `verify` must notice a flipped bit at `flip`.
  template <typename Set, typename Verify>
  void Check(uint8_t* bytes, size_t size, size_t flip, Set set, Verify verify, const std::string& what) {
    EXPECT_TRUE(verify(bytes)) << what;
    std::vector<uint8_t> copy(bytes, bytes + size);
    set(copy.data());
    EXPECT_EQ(std::memcmp(copy.data(), bytes, size), 0) << what;
    if (!geometry_.metadata_csum()) return;
    copy[flip] ^= 4;
    EXPECT_FALSE(verify(copy.data())) << what;
  }

  void CheckSuperBlockAndDescriptors();
  void CheckInodes();
  void CheckDirectoryBlocks();
  void CheckExtentAndAttributeBlocks();
  void CheckImpossibleTails();

  TempDirectory directory_;
  std::string path_;
  std::vector<uint8_t> image_;
  Geometry geometry_;
};

void ChecksumsTest::CheckSuperBlockAndDescriptors() {
  SuperBlock super_block = SuperBlockOf(image_);
  const uint32_t stored = super_block.s_checksum;
  if (geometry_.metadata_csum()) {
    EXPECT_EQ(SuperBlockChecksum(super_block), stored);
  }
  SetSuperBlockChecksum(&super_block);
  EXPECT_EQ(super_block.s_checksum, stored);
  for (GroupNumber group = 0; group < geometry_.group_count; ++group) {
    uint8_t* descriptor = Block(geometry_.SuperBlockNumber() + 1) + size_t{group} * geometry_.descriptor_bytes;
    Check(
        descriptor, geometry_.descriptor_bytes, 5,
        [&](uint8_t* bytes) { SetGroupDescriptorChecksum(geometry_, group, bytes); },
        [&](const uint8_t* bytes) { return VerifyGroupDescriptor(geometry_, group, bytes); },
        absl::StrCat("group ", group));
  }
}

void ChecksumsTest::CheckInodes() {
  VolumeRig rig(image_, false);
  for (InodeNumber inode = 1; inode <= 420 && inode <= geometry_.inode_count; ++inode) {
    if (*rig.context.groups->IsInodeTableSlotUninitialized(inode)) continue;
    uint32_t offset = 0;
    uint8_t* slot = Block(*rig.context.groups->InodeTableBlock(inode, &offset)) + offset;
    if (reinterpret_cast<RawInode*>(slot)->i_mode == 0) continue;
    Check(
        slot, geometry_.inode_bytes, 4, [&](uint8_t* bytes) { SetInodeChecksum(geometry_, inode, bytes); },
        [&](const uint8_t* bytes) { return VerifyInode(geometry_, inode, bytes); }, absl::StrCat("inode ", inode));
  }
}

void ChecksumsTest::CheckDirectoryBlocks() {
  const uint32_t root_seed = SeedOf("/");
  Check(
      Block(BlockOfFile("/", 0)), geometry_.block_bytes, 30,
      [&](uint8_t* bytes) { SetDirectoryLeafChecksum(geometry_, root_seed, bytes); },
      [&](const uint8_t* bytes) { return VerifyDirectoryLeafChecksum(geometry_, root_seed, bytes); }, "root directory");
  const uint32_t seed = SeedOf("/many");
  constexpr uint32_t kRootCountOffset = 0x20;
  Check(
      Block(BlockOfFile("/many", 0)), geometry_.block_bytes, 0x2C,
      [&](uint8_t* bytes) { SetDxChecksum(geometry_, seed, bytes, kRootCountOffset); },
      [&](const uint8_t* bytes) { return VerifyDxChecksum(geometry_, seed, bytes, kRootCountOffset); }, "htree root");
  Check(
      Block(BlockOfFile("/many", 1)), geometry_.block_bytes, 30,
      [&](uint8_t* bytes) { SetDirectoryLeafChecksum(geometry_, seed, bytes); },
      [&](const uint8_t* bytes) { return VerifyDirectoryLeafChecksum(geometry_, seed, bytes); }, "htree leaf");
}

void ChecksumsTest::CheckExtentAndAttributeBlocks() {
  VolumeRig rig(image_, false);
  const absl::StatusOr<InodeRef> file = rig.context.inode_store->Read(InodeOf("/holes"), false);
  ASSERT_TRUE(file.ok()) << file.status();
  BlockNumber xattr_block = 0;
  BlockNumber extent_block = 0;
  {
    MutexLock lock((*file)->mutex);
    const auto* header = reinterpret_cast<const ExtentHeader*>((*file)->block_area.data());
    ASSERT_GT(header->eh_depth, 0);
    extent_block = reinterpret_cast<const ExtentIndex*>(header + 1)->ei_leaf_lo;
    xattr_block = (*file)->xattr_block;
  }
  const uint32_t seed = SeedOf("/holes");
  Check(
      Block(extent_block), geometry_.block_bytes, 20,
      [&](uint8_t* bytes) { SetExtentBlockChecksum(geometry_, seed, bytes); },
      [&](const uint8_t* bytes) { return VerifyExtentBlockChecksum(geometry_, seed, bytes); }, "extent block");
  ASSERT_NE(xattr_block, 0U);
  if (geometry_.metadata_csum()) {
    EXPECT_EQ(XattrBlockChecksum(geometry_, xattr_block, Block(xattr_block)),
              *reinterpret_cast<Le32*>(Block(xattr_block) + 16));
  }
}

// A node whose tail would lie outside the block is refused, not read beyond.
void ChecksumsTest::CheckImpossibleTails() {
  std::vector<uint8_t> block(geometry_.block_bytes, 0xFF);
  EXPECT_EQ(VerifyExtentBlockChecksum(geometry_, 1, block.data()), !geometry_.metadata_csum());
  EXPECT_EQ(VerifyDxChecksum(geometry_, 1, block.data(), 8), !geometry_.metadata_csum());
  EXPECT_EQ(VerifyDxChecksum(geometry_, 1, block.data(), geometry_.block_bytes), !geometry_.metadata_csum());
  const std::vector<uint8_t> before = block;
  SetExtentBlockChecksum(geometry_, 1, block.data());
  SetDxChecksum(geometry_, 1, block.data(), 8);
  EXPECT_EQ(block, before);
}

// One case per kind: populating the image takes longer than all checks.
TEST_P(ChecksumsTest, MatchTheTools) {
  CheckSuperBlockAndDescriptors();
  CheckInodes();
  CheckDirectoryBlocks();
  CheckExtentAndAttributeBlocks();
  CheckImpossibleTails();
}

INSTANTIATE_TEST_SUITE_P(Images, ChecksumsTest, testing::ValuesIn(test_support::kImageKinds), test_support::KindName);

}  // namespace
}  // namespace elidefs::core
