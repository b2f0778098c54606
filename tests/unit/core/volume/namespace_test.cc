// Every namespace operation and each of its errors, one at a time.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/volume/namespace_rig.h"

namespace elidefs::test_support {
namespace {

constexpr uint64_t kImageBytes = uint64_t{16} << 20U;
constexpr Credentials kOwner = {.uid = 1000, .gid = 100};

class NamespaceTest : public testing::Test {
 protected:
  NamespaceTest() : NamespaceTest(MakeImage(kImageBytes, "-t ext4 -b 1024")) {}
  explicit NamespaceTest(const std::vector<uint8_t>& image) : mounted_(image) {}

  Volume& volume() { return mounted_.volume(); }
  // A new inode of which no lookup is kept.
  InodeId File(InodeId directory, const std::string& name, uint32_t mode = S_IFREG | 0644) {
    return Kept(volume().MakeNode(directory, name, mode, 0, kOwner));
  }
  InodeId MakeDirectory(InodeId directory, const std::string& name, uint32_t mode = 0755) {
    return Kept(volume().MakeDirectory(directory, name, mode, kOwner));
  }
  InodeId Find(InodeId directory, const std::string& name) { return Kept(volume().Lookup(directory, name)); }
  struct stat Stat(InodeId inode) {
    const absl::StatusOr<struct stat> attributes = volume().GetAttributes(inode);
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    struct stat none = {};
    return attributes.value_or(none);
  }
  std::vector<uint8_t> Finish() {
    EXPECT_FALSE(volume().read_only());
    std::vector<uint8_t> image = mounted_.Unmount();
    EXPECT_EQ(Complaints(image), "");
    return image;
  }

  MountedImage mounted_;

 private:
  InodeId Kept(const absl::StatusOr<Entry>& entry) {
    EXPECT_TRUE(entry.ok()) << entry.status();
    if (!entry.ok()) return 0;
    volume().Forget(entry->inode, 1);
    return entry->inode;
  }
};

template <typename T>
int ErrnoOfResult(const absl::StatusOr<T>& result) {
  return ErrnoOf(result.status());
}

TEST_F(NamespaceTest, LookupFindsNamesDotsAndRefusesTheRest) {
  const InodeId directory = MakeDirectory(kRootInodeId, "d");
  const InodeId file = File(directory, "f");
  EXPECT_EQ(Find(directory, "f"), file);
  EXPECT_EQ(Find(directory, "."), directory);
  EXPECT_EQ(Find(directory, ".."), kRootInodeId);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(directory, "g")), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(file, "g")), ENOTDIR);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(directory, std::string(256, 'n'))), ENAMETOOLONG);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(directory, "")), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(directory, "a/b")), EINVAL);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(0, "f")), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(uint64_t{1} << 40U, "f")), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().LookupInode(8)), ENOENT) << "the journal is nobody's file";
  EXPECT_EQ(ErrnoOfResult(volume().LookupInode(file + 1)), ENOENT);
  const absl::StatusOr<Entry> by_path = volume().LookupPath("//d///f");
  ASSERT_TRUE(by_path.ok()) << by_path.status();
  EXPECT_EQ(by_path->inode, file);
  EXPECT_EQ(ErrnoOfResult(volume().LookupPath("d/f")), EINVAL);
  EXPECT_EQ(ErrnoOfResult(volume().LookupPath("/d/f/g")), ENOTDIR);
  Finish();
}

TEST_F(NamespaceTest, CreationSetsTypeOwnerAndTimes) {
  const absl::StatusOr<Entry> file = volume().MakeNode(kRootInodeId, "f", S_IFREG | 04751, 0, kOwner);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->attributes.st_mode, S_IFREG | 04751U);
  EXPECT_EQ(file->attributes.st_uid, kOwner.uid);
  EXPECT_EQ(file->attributes.st_gid, kOwner.gid);
  EXPECT_EQ(file->attributes.st_nlink, 1U);
  EXPECT_GE(file->attributes.st_blksize, 4096);
  EXPECT_GT(file->attributes.st_mtim.tv_sec, 1'600'000'000);
  EXPECT_NE(file->generation, 0U);
  for (const uint64_t device : {makedev(8, 1), makedev(259, 3), makedev(4095, 0xFFFFF), makedev(1, 256)}) {
    const std::string name = absl::StrCat("device", device);
    const absl::StatusOr<Entry> node = volume().MakeNode(kRootInodeId, name, S_IFBLK | 0600, device, kOwner);
    ASSERT_TRUE(node.ok()) << node.status();
    EXPECT_EQ(node->attributes.st_rdev, device);
  }
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, "big", S_IFCHR, makedev(4096, 0), kOwner)), EINVAL);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, "d", S_IFDIR | 0755, 0, kOwner)), EPERM);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, "l", S_IFLNK | 0777, 0, kOwner)), EINVAL);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, "f", S_IFREG, 0, kOwner)), EEXIST);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, "..", S_IFREG, 0, kOwner)), EEXIST);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(file->inode, "g", S_IFREG, 0, kOwner)), ENOTDIR);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(kRootInodeId, std::string(256, 'n'), S_IFREG, 0, kOwner)), ENAMETOOLONG);
  File(kRootInodeId, std::string(255, 'n'));
  Finish();
}

TEST_F(NamespaceTest, SetgidDirectoriesPassTheirGroupOn) {
  const InodeId directory = MakeDirectory(kRootInodeId, "d");
  AttributeChange change;
  change.fields = AttributeChange::kMode | AttributeChange::kGid;
  change.mode = 02775;
  change.gid = 4242;
  ASSERT_TRUE(volume().SetAttributes(directory, change).ok());
  const struct stat file = Stat(File(directory, "f"));
  EXPECT_EQ(file.st_gid, 4242U);
  EXPECT_EQ(file.st_mode & S_ISGID, 0U);
  const struct stat below = Stat(MakeDirectory(directory, "d"));
  EXPECT_EQ(below.st_gid, 4242U);
  EXPECT_NE(below.st_mode & S_ISGID, 0U);
  Finish();
}

TEST_F(NamespaceTest, DirectoriesCountTheirSubdirectories) {
  const InodeId top = MakeDirectory(kRootInodeId, "top");
  const InodeId middle = MakeDirectory(top, "middle");
  EXPECT_EQ(Stat(top).st_nlink, 3U);
  EXPECT_EQ(ErrnoOf(volume().RemoveDirectory(kRootInodeId, "top")), ENOTEMPTY);
  EXPECT_EQ(ErrnoOf(volume().RemoveDirectory(top, ".")), EINVAL);
  EXPECT_EQ(ErrnoOf(volume().RemoveDirectory(top, "..")), ENOTEMPTY);
  EXPECT_EQ(ErrnoOf(volume().Unlink(top, "middle")), EISDIR);
  File(middle, "f");
  EXPECT_EQ(ErrnoOf(volume().RemoveDirectory(middle, "f")), ENOTDIR);
  EXPECT_EQ(ErrnoOf(volume().RemoveDirectory(middle, "none")), ENOENT);
  EXPECT_TRUE(volume().Unlink(middle, "f").ok());
  EXPECT_TRUE(volume().RemoveDirectory(top, "middle").ok());
  EXPECT_EQ(Stat(top).st_nlink, 2U);
  EXPECT_EQ(ErrnoOfResult(volume().GetAttributes(middle)), ENOENT);
  Finish();
}

TEST_F(NamespaceTest, RemovedDirectoryInUseIsEmptyAndTakesNoNames) {
  const absl::StatusOr<Entry> entry = volume().MakeDirectory(kRootInodeId, "d", 0755, kOwner);
  ASSERT_TRUE(entry.ok());
  const InodeId file = File(kRootInodeId, "f");
  ASSERT_TRUE(volume().RemoveDirectory(kRootInodeId, "d").ok());
  EXPECT_EQ(Stat(entry->inode).st_nlink, 0U);
  EXPECT_EQ(ErrnoOfResult(volume().MakeNode(entry->inode, "f", S_IFREG, 0, kOwner)), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().Link(file, entry->inode, "f")), ENOENT);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", entry->inode, "f", 0)), ENOENT);
  int seen = 0;
  EXPECT_TRUE(volume()
                  .ReadDirectory(entry->inode, 0,
                                 [&seen](const DirectoryItem&) {
                                   ++seen;
                                   return true;
                                 })
                  .ok());
  EXPECT_EQ(seen, 0);
  volume().Forget(entry->inode, 1);
  Finish();
}

TEST_F(NamespaceTest, SymlinksOfEveryLength) {
  std::set<InodeId> links;
  for (const size_t length : {size_t{1}, size_t{59}, size_t{60}, size_t{61}, size_t{1023}}) {
    const std::string target(length, 't');
    const absl::StatusOr<Entry> entry = volume().MakeSymlink(kRootInodeId, absl::StrCat("l", length), target, kOwner);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(entry->attributes.st_size, static_cast<off_t>(length));
    EXPECT_EQ(entry->attributes.st_blocks, length < 60 ? 0 : 2);
    EXPECT_EQ(volume().ReadLink(entry->inode).value_or(""), target);
    links.insert(entry->inode);
  }
  EXPECT_EQ(links.size(), 5U);
  EXPECT_EQ(ErrnoOfResult(volume().MakeSymlink(kRootInodeId, "x", std::string(1024, 't'), kOwner)), ENAMETOOLONG);
  EXPECT_EQ(ErrnoOfResult(volume().MakeSymlink(kRootInodeId, "x", "", kOwner)), ENOENT);
  EXPECT_EQ(ErrnoOfResult(volume().ReadLink(kRootInodeId)), EINVAL);
  EXPECT_TRUE(volume().Unlink(kRootInodeId, "l1023").ok());
  Finish();
}

TEST_F(NamespaceTest, HardLinks) {
  const InodeId directory = MakeDirectory(kRootInodeId, "d");
  const absl::StatusOr<Entry> file = volume().MakeNode(kRootInodeId, "f", S_IFREG | 0644, 0, kOwner);
  ASSERT_TRUE(file.ok());
  const absl::StatusOr<Entry> link = volume().Link(file->inode, directory, "g");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->inode, file->inode);
  EXPECT_EQ(link->attributes.st_nlink, 2U);
  EXPECT_EQ(ErrnoOfResult(volume().Link(file->inode, directory, "g")), EEXIST);
  EXPECT_EQ(ErrnoOfResult(volume().Link(directory, kRootInodeId, "e")), EPERM);
  EXPECT_EQ(ErrnoOfResult(volume().Link(file->inode, file->inode, "e")), ENOTDIR);
  EXPECT_TRUE(volume().Unlink(kRootInodeId, "f").ok());
  EXPECT_TRUE(volume().Unlink(directory, "g").ok());
  EXPECT_EQ(ErrnoOfResult(volume().Link(file->inode, directory, "h")), ENOENT) << "no way back from zero links";
  EXPECT_EQ(Stat(file->inode).st_nlink, 0U);
  volume().Forget(file->inode, 2);
  EXPECT_EQ(ErrnoOfResult(volume().GetAttributes(file->inode)), ENOENT);
  Finish();
}

TEST_F(NamespaceTest, UnlinkedOpenFileLivesUntilItsLastUse) {
  const absl::StatusOr<VolumeSpace> before = volume().GetSpace();
  const InodeId inode = File(kRootInodeId, "f");
  absl::StatusOr<std::unique_ptr<elidefs::File>> file = volume().OpenFile(inode, kOpenRead | kOpenWrite);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<uint8_t> data(5000, 7);
  ASSERT_TRUE((*file)->Write(0, data).ok());
  EXPECT_EQ(ErrnoOf(volume().Unlink(kRootInodeId, ".")), EISDIR);
  EXPECT_EQ(ErrnoOf(volume().Unlink(kRootInodeId, "none")), ENOENT);
  ASSERT_TRUE(volume().Unlink(kRootInodeId, "f").ok());
  std::vector<uint8_t> read(5000);
  EXPECT_EQ((*file)->Read(0, absl::MakeSpan(read)).value_or(0), 5000U);
  EXPECT_EQ(read, data);
  file->reset();
  EXPECT_TRUE(volume().Flush().ok());
  const std::vector<uint8_t> image = Finish();
  MountedImage again(image);
  EXPECT_EQ(again->GetSpace()->free_inodes, before->free_inodes);
  EXPECT_EQ(again->GetSpace()->free_blocks, before->free_blocks);
}

TEST_F(NamespaceTest, RenameErrors) {
  const InodeId a = MakeDirectory(kRootInodeId, "a");
  const InodeId b = MakeDirectory(a, "b");
  const InodeId c = MakeDirectory(b, "c");
  const InodeId file = File(kRootInodeId, "f");
  File(kRootInodeId, "g");
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "a", c, "x", 0)), EINVAL);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "a", a, "x", 0)), EINVAL);
  EXPECT_EQ(ErrnoOf(volume().Rename(b, "c", kRootInodeId, "a", 0)), ENOTEMPTY) << "the victim is above";
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "a", kRootInodeId, "f", 0)), ENOTDIR);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", kRootInodeId, "a", 0)), EISDIR);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "none", kRootInodeId, "x", 0)), ENOENT);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", kRootInodeId, "g", kRenameNoReplace)), EEXIST);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", kRootInodeId, "g", kRenameExchange)), EINVAL);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", file, "g", 0)), ENOTDIR);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, ".", a, "g", 0)), EBUSY);
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "f", a, std::string(256, 'n'), 0)), ENAMETOOLONG);
  MakeDirectory(kRootInodeId, "e");
  EXPECT_EQ(ErrnoOf(volume().Rename(kRootInodeId, "e", kRootInodeId, "a", 0)), ENOTEMPTY);
  Finish();
}

TEST_F(NamespaceTest, RenameMovesAndReplaces) {
  const InodeId a = MakeDirectory(kRootInodeId, "a");
  const InodeId b = MakeDirectory(kRootInodeId, "b");
  const InodeId moved = MakeDirectory(a, "moved");
  const InodeId empty = MakeDirectory(b, "empty");
  ASSERT_TRUE(volume().Rename(a, "moved", b, "empty", 0).ok());
  EXPECT_EQ(Find(b, "empty"), moved);
  EXPECT_EQ(Find(moved, ".."), b);
  EXPECT_EQ(Stat(a).st_nlink, 2U);
  EXPECT_EQ(Stat(b).st_nlink, 3U);
  EXPECT_EQ(ErrnoOfResult(volume().GetAttributes(empty)), ENOENT);

  const InodeId file = File(a, "f");
  const absl::StatusOr<Entry> victim = volume().MakeNode(a, "v", S_IFREG | 0644, 0, kOwner);
  ASSERT_TRUE(victim.ok());
  ASSERT_TRUE(volume().Rename(a, "f", a, "v", 0).ok());
  EXPECT_EQ(Find(a, "v"), file);
  EXPECT_EQ(ErrnoOfResult(volume().Lookup(a, "f")), ENOENT);
  EXPECT_EQ(Stat(victim->inode).st_nlink, 0U);
  volume().Forget(victim->inode, 1);

  ASSERT_TRUE(volume().Link(file, b, "same").ok());
  volume().Forget(file, 1);
  EXPECT_TRUE(volume().Rename(a, "v", b, "same", 0).ok()) << "two names of one inode stay";
  EXPECT_EQ(Find(a, "v"), file);
  EXPECT_EQ(Find(b, "same"), file);
  EXPECT_TRUE(volume().Rename(a, "v", a, "v", 0).ok());
  EXPECT_TRUE(volume().Rename(a, "v", b, "other", kRenameNoReplace).ok());
  EXPECT_EQ(Stat(file).st_nlink, 2U);
  Finish();
}

TEST_F(NamespaceTest, AttributesChange) {
  const InodeId file = File(kRootInodeId, "f", S_IFREG | 06755);
  AttributeChange change;
  change.fields = AttributeChange::kUid;
  change.uid = 77777;
  ASSERT_TRUE(volume().SetAttributes(file, change).ok());
  EXPECT_EQ(Stat(file).st_mode, S_IFREG | 0755U) << "an executable loses setuid and setgid with its owner";
  EXPECT_EQ(Stat(file).st_uid, 77777U);
  change.fields = AttributeChange::kMode;
  change.mode = S_IFDIR | 04711;
  ASSERT_TRUE(volume().SetAttributes(file, change).ok());
  EXPECT_EQ(Stat(file).st_mode, S_IFREG | 04711U) << "the type stays";
  change.fields = AttributeChange::kAtime | AttributeChange::kMtime;
  change.atime = {.tv_sec = -5, .tv_nsec = 999'999'999};
  change.mtime = {.tv_sec = int64_t{1} << 33U, .tv_nsec = 1};
  ASSERT_TRUE(volume().SetAttributes(file, change).ok());
  change.mtime.tv_nsec = 1'000'000'000;
  EXPECT_EQ(ErrnoOfResult(volume().SetAttributes(file, change)), EINVAL);
  change.fields = AttributeChange::kSize;
  change.size_bytes = 10;
  EXPECT_EQ(ErrnoOfResult(volume().SetAttributes(kRootInodeId, change)), EISDIR);
  EXPECT_EQ(ErrnoOfResult(volume().SetAttributes(File(kRootInodeId, "p", S_IFIFO | 0600), change)), EINVAL);
  ASSERT_TRUE(volume().SetAttributes(file, change).ok());
  const std::vector<uint8_t> image = Finish();

  MountedImage again(image);
  const absl::StatusOr<struct stat> attributes = again->GetAttributes(file);
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  EXPECT_EQ(attributes->st_size, 10);
  EXPECT_EQ(attributes->st_atim.tv_sec, -5);
  EXPECT_EQ(attributes->st_atim.tv_nsec, 999'999'999);
}

TEST_F(NamespaceTest, ReadDirectoryContinuesAtEveryCookie) {
  const InodeId directory = MakeDirectory(kRootInodeId, "d");
  std::set<std::string> expected = {".", ".."};
  for (int i = 0; i < 300; ++i) expected.insert(absl::StrCat("name", i));
  for (const std::string& name : expected) {
    if (name[0] != '.') File(directory, name);
  }
  std::set<std::string> seen;
  uint64_t cookie = 0;
  for (bool more = true; more;) {
    more = false;
    ASSERT_TRUE(volume()
                    .ReadDirectory(directory, cookie,
                                   [&](const DirectoryItem& item) {
                                     EXPECT_TRUE(seen.emplace(item.name).second) << "twice";
                                     EXPECT_NE(item.next_cookie, 0U);
                                     cookie = item.next_cookie;
                                     more = true;
                                     return seen.size() % 7 != 0;
                                   })
                    .ok());
  }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(ErrnoOf(volume().ReadDirectory(Find(directory, "name1"), 0, [](const DirectoryItem&) { return true; })),
            ENOTDIR);
  Finish();
}

}  // namespace
}  // namespace elidefs::test_support
