// Directories that the kernel or e2fsck wrote, read by us: indexed ones of several hash versions, long names, block
// maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/directory/directory.h"
#include "core/directory/directory_block.h"
#include "core/directory/htree.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {
namespace {

constexpr uint32_t kNames = 20000;

std::string KernelName(uint32_t number) {
  // Every byte above 0x7F distinguishes signed from unsigned hashes.
  std::string name = absl::StrCat("file", number, "_\xC3\xA9\xC3\xBC");
  if (number % 50 == 0) name.resize(255, 'L');
  return name;
}

// A volume with 20,000 names in /d, all links to a few files.
std::vector<uint8_t> BigDirectoryImage(const std::string& options, const std::string& debugfs_commands) {
  return ChangeInKernel(MakeMappingImage(64, "-J size=4 -N 1024 " + options, debugfs_commands), "",
                        [](const std::string& mount_point) {
                          std::filesystem::create_directory(mount_point + "/d");
                          std::string target;
                          for (uint32_t i = 0; i < kNames; ++i) {
                            const std::string path = mount_point + "/d/" + KernelName(i);
                            if (i % 10000 == 0) {
                              target = path;
                              std::ofstream(path).close();
                            } else {
                              std::filesystem::create_hard_link(target, path);
                            }
                          }
                        });
}

struct Kind {
  const char* name;
  const char* options;
  const char* debugfs_commands;
};
void PrintTo(const Kind& kind, std::ostream* stream) {
  *stream << kind.name;
}

class KernelDirectory : public testing::TestWithParam<Kind> {};

TEST_P(KernelDirectory, EveryNameIsFoundThroughTheIndex) {
  const std::vector<uint8_t> image = BigDirectoryImage(GetParam().options, GetParam().debugfs_commands);
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  ASSERT_NE(inode->flags & kInodeIndex, 0U);
  Directory directory(&rig.context(), inode.get());
  std::map<std::string, InodeNumber> listed;
  const absl::Status status = directory.ForEach(0, [&](const Directory::Entry& entry) {
    EXPECT_TRUE(listed.emplace(std::string(entry.name), entry.inode).second);
    return true;
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(listed.size(), kNames + 2);
  // Warnings are what the fallback to reading all blocks says.
  uint32_t warnings = 0;
  rig.context().logger = Logger([&](LogLevel, std::string_view) { ++warnings; });
  const auto reader = DirectoryReader::Open(&rig.context(), *inode);
  ASSERT_TRUE(reader.ok());
  for (uint32_t i = 0; i < kNames; ++i) {
    const std::string name = KernelName(i);
    const auto match = directory.Find(name);
    ASSERT_TRUE(match.ok()) << match.status();
    ASSERT_EQ(match->inode, listed.at(name)) << name;
    const auto missing = directory.Find(name.substr(1));
    ASSERT_TRUE(missing.ok()) << missing.status();
    ASSERT_EQ(missing->inode, 0U);
  }
  EXPECT_EQ(warnings, 0U);
  EXPECT_EQ(*directory.Parent(), kRootInode);
  EXPECT_EQ(*directory.IsEmpty(), false);

  // Removal works in the leaf; additions are refused; ".." can be moved.
  {
    Handle handle = rig.Start(2);
    EXPECT_EQ(StatusToErrno(directory.Add(handle, "new", 12, kTypeRegular)), EOPNOTSUPP);
    EXPECT_TRUE(directory.Retarget(handle, "..", kRootInode, kTypeDirectory).ok());
  }
  for (uint32_t i = 1; i < 1000; i += 7) {
    Handle handle = rig.Start(Directory::kRemoveCredits + 1);
    ASSERT_TRUE(directory.Remove(handle, KernelName(i)).ok());
    EXPECT_EQ(directory.Find(KernelName(i))->inode, 0U);
    const InodeRef file = rig.Load(listed.at(KernelName(i)));
    MutexLock file_lock(file->mutex);
    --file->links;
    rig.Store(handle, *file);
  }
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, KernelDirectory,
    testing::Values(Kind{"half_md4_1k_blocks", "-b 1024", ""}, Kind{"half_md4_4k_blocks", "-b 4096", ""},
                    Kind{"tea", "-b 1024", "set_super_value def_hash_version tea\n"},
                    Kind{"legacy", "-b 1024", "set_super_value def_hash_version legacy\n"},
                    Kind{"half_md4_unsigned", "-b 1024", "set_super_value flags 2\n"},
                    Kind{"tea_unsigned", "-b 1024", "set_super_value def_hash_version tea\nset_super_value flags 2\n"},
                    Kind{"no_checksums", "-b 1024 -O ^metadata_csum", ""}),
    [](const testing::TestParamInfo<Kind>& info) { return info.param.name; });

TEST(KernelDirectoryKinds, AnUnknownHashOrABrokenIndexFallsBackToAllBlocks) {
  // Without checksums, so that the index can be changed by hand.
  std::vector<uint8_t> image = BigDirectoryImage("-b 1024 -O ^metadata_csum", "");
  const InodeNumber number = InodeOfPath(image, "/d");
  BlockNumber root = 0;
  {
    MappingRig rig(image);
    ASSERT_TRUE(rig.usable());
    const InodeRef inode = rig.Load(number);
    MutexLock lock(inode->mutex);
    const auto reader = DirectoryReader::Open(&rig.context(), *inode);
    ASSERT_TRUE(reader.ok());
    root = reader->ReadBlock(*inode, 0)->block_number();
  }
  struct Damage {
    uint32_t offset;
    uint8_t value;
  };
  // Hash version, levels, count, a block number of the first entries.
  for (const Damage damage : {Damage{28, 9}, Damage{30, 7}, Damage{34, 255}, Damage{38, 200}}) {
    std::vector<uint8_t> damaged = image;
    damaged[root * 1024 + damage.offset] = damage.value;
    MappingRig rig(damaged);
    ASSERT_TRUE(rig.usable());
    const InodeRef inode = rig.Load(number);
    MutexLock lock(inode->mutex);
    Directory directory(&rig.context(), inode.get());
    for (uint32_t i = 0; i < kNames; i += 997) {
      const auto match = directory.Find(KernelName(i));
      ASSERT_TRUE(match.ok()) << match.status();
      EXPECT_NE(match->inode, 0U) << "damage at " << damage.offset;
    }
  }
}

TEST(KernelDirectoryKinds, BlockMappedDirectoriesAreReadOnly) {
  const std::vector<uint8_t> image = BigDirectoryImage("-b 1024 -O ^extents,^64bit", "");
  MappingRig rig(image, /*read_write=*/false);
  ASSERT_TRUE(rig.usable());
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  ASSERT_FALSE(inode->HasExtents());
  Directory directory(&rig.context(), inode.get());
  for (uint32_t i = 0; i < kNames; ++i) {
    const auto match = directory.Find(KernelName(i));
    ASSERT_TRUE(match.ok()) << match.status();
    ASSERT_NE(match->inode, 0U);
  }
  Handle handle = rig.Start(10);
  EXPECT_EQ(StatusToErrno(directory.Remove(handle, KernelName(1))), EOPNOTSUPP);
  EXPECT_EQ(StatusToErrno(directory.Add(handle, "new", 12, kTypeRegular)), EOPNOTSUPP);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
