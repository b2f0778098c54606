// Files that the kernel wrote, read by us: deep sparse extent trees, unwritten extents, and block maps of every level.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

// Block `logical` of a test file is filled with its number, over and over.
std::vector<uint32_t> PatternOf(uint32_t logical, uint32_t block_bytes) {
  return std::vector<uint32_t>(block_bytes / sizeof(uint32_t), logical ^ 0xA5A5A5A5U);
}

void WriteBlocks(const std::string& path, const std::vector<uint32_t>& blocks, uint32_t block_bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  for (const uint32_t logical : blocks) {
    const std::vector<uint32_t> pattern = PatternOf(logical, block_bytes);
    ASSERT_EQ(pwrite(file, pattern.data(), block_bytes, static_cast<off_t>(logical) * block_bytes), block_bytes);
  }
  close(file);
}

// Every mapped block within the file holds its own number; returns how many are mapped.
template <typename Lookup>
uint32_t CheckContent(MappingRig& rig, uint64_t blocks, Lookup lookup) {
  uint32_t mapped = 0;
  for (uint64_t logical = 0; logical < blocks && !testing::Test::HasFailure();) {
    const absl::StatusOr<Mapping> mapping = lookup(static_cast<LogicalBlock>(logical));
    EXPECT_TRUE(mapping.ok()) << mapping.status();
    if (!mapping.ok()) break;
    EXPECT_GT(mapping->length, 0U);
    for (uint32_t i = 0; !mapping->is_hole() && !mapping->unwritten && i < mapping->length; ++i) {
      const std::vector<uint32_t> pattern = PatternOf(mapping->logical + i, rig.geometry().block_bytes);
      std::vector<uint32_t> content(pattern.size());
      const uint64_t offset = (mapping->physical + i) * rig.geometry().block_bytes;
      EXPECT_EQ(rig.context().queue->Read(offset, content.data(), rig.geometry().block_bytes), 0);
      EXPECT_EQ(content, pattern) << "logical block " << mapping->logical + i;
      ++mapped;
    }
    logical += mapping->length;
  }
  return mapped;
}

TEST(KernelExtents, SparseFilesAndUnwrittenExtents) {
  std::vector<uint32_t> sparse;
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 3000; ++i) sparse.push_back(i * 3 + random() % 2);
  const std::vector<uint8_t> image =
      ChangeInKernel(MakeMappingImage(64, "-b 1024 -J size=2 -N 256", ""), "", [&](const std::string& mount_point) {
        WriteBlocks(mount_point + "/sparse", sparse, 1024);
        WriteBlocks(mount_point + "/dense", {0, 1, 2, 3, 4}, 1024);
        test_support::MustRun("fallocate -o 10240 -l 204800 " + mount_point + "/dense");
      });
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  {
    const InodeRef inode = rig.Load(InodeOfPath(image, "/sparse"));
    MutexLock lock(inode->mutex);
    EXPECT_GE(ExtentNode(inode->block_area.data()).depth(), 2U);
    ExtentTree tree(&rig.context(), inode.get());
    const uint32_t mapped =
        CheckContent(rig, inode->size_bytes / 1024,
                     [&](LogicalBlock logical) ABSL_NO_THREAD_SAFETY_ANALYSIS { return tree.Lookup(logical); });
    EXPECT_EQ(mapped, sparse.size());
    // What the kernel made is cut by us and still sound.
    for (bool done = false; !done;) {
      Handle handle = rig.Start(ExtentTree::kTruncateCredits + 1);
      const auto result = tree.TruncateFrom(handle, 1000);
      ASSERT_TRUE(result.ok()) << result.status();
      done = *result;
      inode->size_bytes = 1000 * 1024;
      rig.Store(handle, *inode);
    }
  }
  {
    const InodeRef inode = rig.Load(InodeOfPath(image, "/dense"));
    MutexLock lock(inode->mutex);
    ExtentTree tree(&rig.context(), inode.get());
    const auto unwritten = tree.Lookup(10);
    ASSERT_TRUE(unwritten.ok());
    EXPECT_TRUE(unwritten->unwritten);
    EXPECT_TRUE(tree.Lookup(7)->is_hole());
    Handle handle = rig.Start(tree.InsertCredits() + 1);
    EXPECT_TRUE(tree.ConvertToWritten(handle, 50, 3, false).ok());
    EXPECT_FALSE(tree.Lookup(50)->unwritten);
    EXPECT_EQ(tree.Lookup(50)->length, 3U);
    EXPECT_TRUE(tree.Lookup(53)->unwritten);
    rig.Store(handle, *inode);
  }
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

TEST(KernelExtents, BlockMapsOfEveryLevel) {
  // Direct, single, double and triple indirect with 256 pointers to a block.
  std::vector<uint32_t> blocks = {0, 1, 5, 11, 12, 13, 200, 267, 268, 269, 5000, 65803, 65804, 65805, 70000, 200000};
  for (uint32_t i = 300; i < 900; ++i) blocks.push_back(i);
  const std::vector<uint8_t> image =
      ChangeInKernel(MakeMappingImage(32, "-b 1024 -J size=2 -N 256 -O ^extents,^64bit", ""), "",
                     [&](const std::string& mount_point) { WriteBlocks(mount_point + "/mapped", blocks, 1024); });
  MappingRig rig(image, /*read_write=*/false);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/mapped"));
  MutexLock lock(inode->mutex);
  ASSERT_FALSE(inode->HasExtents());
  const uint32_t mapped =
      CheckContent(rig, inode->size_bytes / 1024, [&](LogicalBlock logical) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return LookupBlockMap(&rig.context(), *inode, logical);
      });
  EXPECT_EQ(mapped, blocks.size());
  const auto beyond = LookupBlockMap(&rig.context(), *inode, 0xFFFFFFFEU);
  ASSERT_TRUE(beyond.ok());
  EXPECT_TRUE(beyond->is_hole());
  ExtentTree tree(&rig.context(), inode.get());
  Handle handle = rig.Start(10);
  EXPECT_EQ(StatusToErrno(tree.Insert(handle, 3, 5000, 1, false, false)), EOPNOTSUPP);
  EXPECT_EQ(StatusToErrno(tree.TruncateFrom(handle, 3).status()), EOPNOTSUPP);
  // Pointers into the filesystem's own blocks.
  auto* pointers = reinterpret_cast<Le32*>(inode->block_area.data());
  pointers[2] = 2;
  EXPECT_EQ(StatusToErrno(LookupBlockMap(&rig.context(), *inode, 2).status()), EUCLEAN);
  pointers[12] = 0xFFFFFFF0U;
  EXPECT_EQ(StatusToErrno(LookupBlockMap(&rig.context(), *inode, 100).status()), EUCLEAN);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
