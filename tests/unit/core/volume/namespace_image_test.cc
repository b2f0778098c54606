// Namespace operations on images with something special: protected inodes, link limits, no room, an index, damage.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/volume/namespace_rig.h"

namespace elidefs::test_support {
namespace {

constexpr uint64_t kImageBytes = uint64_t{16} << 20U;
constexpr Credentials kOwner = {.uid = 1000, .gid = 100};

template <typename T>
int ErrnoOfResult(const absl::StatusOr<T>& result) {
  return ErrnoOf(result.status());
}

TEST(NamespaceImageTest, ProtectedInodesRefuse) {
  const std::vector<uint8_t> image =
      ChangeImage(MakeImage(kImageBytes, "-t ext4 -b 1024"),
                  "mkdir /fixed\nmkdir /growing\nwrite /etc/hostname /growing/f\nwrite /etc/hostname /locked\n"
                  "write /etc/hostname /log\nsif /fixed flags 0x80010\nsif /growing flags 0x80020\n"
                  "sif /locked flags 0x80010\nsif /log flags 0x80020\n");
  MountedImage mounted(image);
  Volume& volume = mounted.volume();
  const InodeId fixed = volume.LookupPath("/fixed")->inode;
  const InodeId growing = volume.LookupPath("/growing")->inode;
  const InodeId locked = volume.LookupPath("/locked")->inode;
  const InodeId log = volume.LookupPath("/log")->inode;
  EXPECT_EQ(ErrnoOfResult(volume.MakeNode(fixed, "f", S_IFREG, 0, kOwner)), EPERM);
  EXPECT_TRUE(volume.MakeNode(growing, "g", S_IFREG, 0, kOwner).ok());
  EXPECT_EQ(ErrnoOf(volume.Unlink(growing, "f")), EPERM);
  EXPECT_EQ(ErrnoOf(volume.Unlink(kRootInodeId, "locked")), EPERM);
  EXPECT_EQ(ErrnoOf(volume.RemoveDirectory(kRootInodeId, "fixed")), EPERM);
  EXPECT_EQ(ErrnoOf(volume.Rename(kRootInodeId, "locked", kRootInodeId, "x", 0)), EPERM);
  EXPECT_EQ(ErrnoOf(volume.Rename(growing, "g", kRootInodeId, "x", 0)), EPERM);
  EXPECT_EQ(ErrnoOfResult(volume.Link(locked, kRootInodeId, "x")), EPERM);
  AttributeChange change;
  change.fields = AttributeChange::kMode;
  EXPECT_EQ(ErrnoOfResult(volume.SetAttributes(locked, change)), EPERM);
  EXPECT_EQ(ErrnoOfResult(volume.SetAttributes(log, change)), EPERM);
  change.fields = AttributeChange::kMtimeNow;
  EXPECT_EQ(ErrnoOfResult(volume.SetAttributes(locked, change)), EPERM);
  EXPECT_TRUE(volume.SetAttributes(log, change).ok());
  EXPECT_EQ(Complaints(mounted.Unmount()), "");
}

TEST(NamespaceImageTest, LinkLimits) {
  const std::string commands = "mkdir /d\nwrite /etc/hostname /f\nsif /d links_count 65000\nsif /f links_count 65000\n";
  {
    MountedImage mounted(ChangeImage(MakeImage(kImageBytes, "-t ext4 -b 1024 -O ^dir_nlink"), commands));
    const InodeId directory = mounted->LookupPath("/d")->inode;
    EXPECT_EQ(ErrnoOfResult(mounted->MakeDirectory(directory, "x", 0755, kOwner)), EMLINK);
    EXPECT_EQ(ErrnoOfResult(mounted->Link(mounted->LookupPath("/f")->inode, directory, "x")), EMLINK);
    ASSERT_TRUE(mounted->MakeDirectory(kRootInodeId, "y", 0755, kOwner).ok());
    EXPECT_EQ(ErrnoOf(mounted->Rename(kRootInodeId, "y", directory, "y", 0)), EMLINK);
  }
  MountedImage mounted(ChangeImage(MakeImage(kImageBytes, "-t ext4 -b 1024"), commands));
  const InodeId directory = mounted->LookupPath("/d")->inode;
  ASSERT_TRUE(mounted->MakeDirectory(directory, "x", 0755, kOwner).ok());
  EXPECT_EQ(mounted->GetAttributes(directory)->st_nlink, 1U) << "dir_nlink: beyond counting";
  ASSERT_TRUE(mounted->RemoveDirectory(directory, "x").ok());
  EXPECT_EQ(mounted->GetAttributes(directory)->st_nlink, 1U);
}

TEST(NamespaceImageTest, ReadOnlyRefusesChanges) {
  MountedImage mounted(ChangeImage(MakeImage(kImageBytes, "-t ext4 -b 1024"), "mkdir /d\n"), 16, /*read_only=*/true);
  Volume& volume = mounted.volume();
  EXPECT_TRUE(volume.LookupPath("/d").ok());
  EXPECT_TRUE(volume.GetSpace().ok());
  EXPECT_EQ(ErrnoOfResult(volume.MakeNode(kRootInodeId, "f", S_IFREG, 0, kOwner)), EROFS);
  EXPECT_EQ(ErrnoOfResult(volume.MakeDirectory(kRootInodeId, "f", 0755, kOwner)), EROFS);
  EXPECT_EQ(ErrnoOfResult(volume.MakeSymlink(kRootInodeId, "f", "t", kOwner)), EROFS);
  EXPECT_EQ(ErrnoOf(volume.RemoveDirectory(kRootInodeId, "d")), EROFS);
  EXPECT_EQ(ErrnoOf(volume.Unlink(kRootInodeId, "d")), EROFS);
  EXPECT_EQ(ErrnoOf(volume.Rename(kRootInodeId, "d", kRootInodeId, "e", 0)), EROFS);
  AttributeChange change;
  change.fields = AttributeChange::kMode;
  EXPECT_EQ(ErrnoOfResult(volume.SetAttributes(kRootInodeId, change)), EROFS);
}

TEST(NamespaceImageTest, OutOfInodesLeavesNothingBehind) {
  MountedImage mounted(MakeImage(kImageBytes, "-t ext4 -b 1024 -N 64"));
  int created = 0;
  int error = 0;
  while (error == 0 && created < 1000) {
    error = ErrnoOfResult(mounted->MakeNode(kRootInodeId, absl::StrCat("f", created), S_IFREG | 0644, 0, kOwner));
    if (error == 0) ++created;
  }
  EXPECT_EQ(error, ENOSPC);
  EXPECT_EQ(ErrnoOfResult(mounted->MakeDirectory(kRootInodeId, "d", 0755, kOwner)), ENOSPC);
  EXPECT_EQ(ErrnoOfResult(mounted->Lookup(kRootInodeId, absl::StrCat("f", created))), ENOENT);
  EXPECT_EQ(mounted->GetSpace()->free_inodes, 0U);
  EXPECT_EQ(Complaints(mounted.Unmount()), "");
}

TEST(NamespaceImageTest, OutOfBlocksLeavesNothingBehind) {
  MountedImage mounted(MakeImage(uint64_t{8} << 20U, "-t ext4 -b 1024 -m 0 -N 8192"));
  int error = 0;
  int created = 0;
  InodeId parent = kRootInodeId;
  while (error == 0 && created < 8000) {
    const absl::StatusOr<Entry> entry = mounted->MakeDirectory(parent, absl::StrCat("d", created), 0755, kOwner);
    error = ErrnoOfResult(entry);
    if (error == 0 && ++created % 100 == 0) parent = entry->inode;
  }
  EXPECT_EQ(error, ENOSPC);
  const uint64_t free_inodes = mounted->GetSpace()->free_inodes;
  EXPECT_GT(free_inodes, 0U);
  EXPECT_EQ(ErrnoOfResult(mounted->MakeDirectory(parent, "again", 0755, kOwner)), ENOSPC);
  EXPECT_EQ(ErrnoOfResult(mounted->MakeSymlink(parent, "again", std::string(200, 't'), kOwner)), ENOSPC);
  EXPECT_EQ(ErrnoOfResult(mounted->Lookup(parent, "again")), ENOENT);
  EXPECT_EQ(mounted->GetSpace()->free_inodes, free_inodes);
  EXPECT_FALSE(mounted->read_only());
  EXPECT_EQ(Complaints(mounted.Unmount()), "");
}

// What a deletion freed is worth a commit before ENOSPC, for names as for data.
TEST(NamespaceImageTest, AFullVolumeFindsWhatADeletionFreed) {
  MountedImage mounted(MakeImage(uint64_t{8} << 20U, "-t ext4 -b 1024 -m 0 -N 8192"));
  const absl::StatusOr<Entry> big = mounted->MakeNode(kRootInodeId, "big", S_IFREG | 0644, 0, kOwner);
  ASSERT_TRUE(big.ok());
  {
    const absl::StatusOr<std::unique_ptr<File>> file = mounted->OpenFile(big->inode, kOpenWrite);
    ASSERT_TRUE(file.ok());
    const std::vector<uint8_t> data(64 << 10, 'b');
    uint64_t offset = 0;
    absl::StatusOr<size_t> written = data.size();
    while (written.ok() && offset < kImageBytes) {
      written = (*file)->Write(offset, data);
      offset += data.size();
    }
    ASSERT_EQ(ErrnoOfResult(written), ENOSPC);
  }
  int made = 0;
  const auto make = [&] {
    const int error = ErrnoOfResult(mounted->MakeDirectory(kRootInodeId, absl::StrCat("d", made), 0755, kOwner));
    if (error == 0) ++made;
    return error;
  };
  while (made < 4000 && make() == 0) {
  }
  ASSERT_LT(made, 4000) << "the volume did not fill up";
  const uint64_t commits = mounted->Stats().commits.commits;
  EXPECT_EQ(make(), ENOSPC);
  EXPECT_EQ(mounted->Stats().commits.commits, commits) << "nothing was freed that a commit could give back";
  ASSERT_TRUE(mounted->Unlink(kRootInodeId, "big").ok());
  mounted->Forget(big->inode, 1);
  EXPECT_EQ(make(), 0);
  EXPECT_EQ(Complaints(mounted.Unmount()), "");
}

// A log may hold file data (data=journal of another system). A read-only mount writes nothing and yet reads it.
TEST(NamespaceImageTest, ReadOnlyMountReadsDataThatIsOnlyInTheLog) {
  const TempDirectory source;
  WriteWholeFile(source.File("f"), std::vector<uint8_t>(3 * 1024, 'o'));
  const TempDirectory folder;
  WriteWholeFile(folder.File("image"), MakeImage(kImageBytes, absl::StrCat("-t ext4 -b 1024 -d ", source.path())));
  WriteWholeFile(folder.File("new"), std::vector<uint8_t>(1024, 'n'));
  const std::string image = folder.File("image");
  const std::string block = MustRun(absl::StrCat("debugfs -R 'bmap /f 1' ", image, " 2>/dev/null"));
  MustRun(absl::StrCat("printf 'jo -c\njw -b ", absl::StripAsciiWhitespace(block), " ", folder.File("new"),
                       "\njc\n' | debugfs -w -f - ", image, " 2>&1"));
  const std::vector<uint8_t> before = ReadWholeFile(image);
  MountedImage mounted(before, 16, /*read_only=*/true);
  const absl::StatusOr<Entry> entry = mounted->LookupPath("/f");
  ASSERT_TRUE(entry.ok()) << entry.status();
  {
    const absl::StatusOr<std::unique_ptr<File>> file = mounted->OpenFile(entry->inode, kOpenRead);
    ASSERT_TRUE(file.ok());
    std::vector<uint8_t> data(3 * 1024);
    const absl::StatusOr<size_t> read = (*file)->Read(0, absl::MakeSpan(data));
    ASSERT_EQ(*read, data.size());
    EXPECT_EQ(std::string(data.begin(), data.end()),
              std::string(1024, 'o') + std::string(1024, 'n') + std::string(1024, 'o'));
  }
  EXPECT_TRUE(mounted.Unmount() == before) << "the image changed";
}

// Names in an indexed directory come and go, or are refused; either way the index stays sound.
TEST(NamespaceImageTest, IndexedDirectory) {
  const TempDirectory source;
  for (int i = 0; i < 500; ++i) WriteWholeFile(source.File(absl::StrCat("name", i)), {1});
  const TempFile file(MakeImage(kImageBytes, "-t ext4 -b 1024 -d " + source.path()));
  RunCommand("e2fsck -fyD " + file.path());
  MountedImage mounted(file.Read());
  const uint64_t free_inodes = mounted->GetSpace()->free_inodes + 250;
  for (int i = 0; i < 500; i += 2) ASSERT_TRUE(mounted->Unlink(kRootInodeId, absl::StrCat("name", i)).ok());
  // Deletions end in the background.
  for (int i = 0; i < 1000 && mounted->GetSpace()->free_inodes != free_inodes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const absl::StatusOr<Entry> added = mounted->MakeNode(kRootInodeId, "added", S_IFREG | 0644, 0, kOwner);
  if (!added.ok()) {
    EXPECT_EQ(ErrnoOfResult(added), EOPNOTSUPP);
    EXPECT_EQ(mounted->GetSpace()->free_inodes, free_inodes);
    EXPECT_EQ(ErrnoOfResult(mounted->Lookup(kRootInodeId, "added")), ENOENT);
  }
  EXPECT_TRUE(mounted->Rename(kRootInodeId, "name1", kRootInodeId, "name3", 0).ok());
  EXPECT_EQ(Complaints(mounted.Unmount()), "");
}

TEST(NamespaceImageTest, NameOfAFreeInodeIsDamage) {
  MountedImage mounted(ChangeImage(MakeImage(kImageBytes, "-t ext4 -b 1024"), "mkdir /d\nlink <100> /d/ghost\n"));
  const InodeId directory = mounted->LookupPath("/d")->inode;
  EXPECT_EQ(ErrnoOfResult(mounted->Lookup(directory, "ghost")), EUCLEAN);
  EXPECT_TRUE(mounted->read_only()) << "errors=remount-ro";
  const absl::Status refused = mounted->Unlink(directory, "ghost");
  EXPECT_EQ(ErrnoOf(refused), EROFS);
  EXPECT_NE(std::string(refused.message()).find("100"), std::string::npos) << refused;
}

}  // namespace
}  // namespace elidefs::test_support
