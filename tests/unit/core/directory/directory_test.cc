// Linear directories: random additions, removals and changes of target against a map, judged by e2fsck.
#include "core/directory/directory.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "core/extent/extent_tree.h"
#include "tests/unit/core/extent/mapping_rig.h"

namespace elidefs::core::mapping_test {
namespace {

std::string NameOf(uint32_t number, std::mt19937& random) {
  std::string name = absl::StrCat("n", number, "_");
  const size_t length = std::min<size_t>(random() % 16 == 0 ? 255 : name.size() + random() % 30, kMaxNameBytes);
  while (name.size() < length) name.push_back(static_cast<char>('a' + random() % 26));
  return name;
}

// Every name but "." and "..", seven entries at a time: each cookie continues where the last call ended.
std::map<std::string, InodeNumber> ListInSteps(Directory& directory,
                                               size_t most_rounds) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::map<std::string, InodeNumber> seen;
  uint64_t cookie = 0;
  for (size_t round = 0; round < most_rounds; ++round) {
    uint32_t visited = 0;
    const absl::Status status = directory.ForEach(cookie, [&](const Directory::Entry& entry) {
      EXPECT_GT(entry.next_cookie, cookie);
      cookie = entry.next_cookie;
      if (entry.name != "." && entry.name != "..") {
        EXPECT_TRUE(seen.emplace(std::string(entry.name), entry.inode).second);
      }
      return ++visited < 7;
    });
    EXPECT_TRUE(status.ok()) << status;
    if (visited == 0) break;
  }
  return seen;
}

// A directory whose entries all point at one of two files, so that link counts can be set right in the end.
class DirectoryProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(DirectoryProperty, RandomOperationsMatchTheModel) {
  const uint32_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const char* const kOptions[] = {"", " -O ^metadata_csum", " -O ^filetype"};
  const std::vector<uint8_t> image =
      MakeMappingImage(16, absl::StrCat("-b ", seed % 2 == 0 ? 1024 : 4096, " -J size=4 -N 256", kOptions[seed % 3]),
                       "mkdir d\nwrite /dev/null one\nwrite /dev/null two\n");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeNumber targets[2] = {InodeOfPath(image, "/one"), InodeOfPath(image, "/two")};
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  Directory directory(&rig.context(), inode.get());
  std::map<std::string, InodeNumber> model;
  const uint32_t most = 1500;
  for (uint32_t step = 0; step < 3 * most && !HasFailure(); ++step) {
    const bool shrink = step > 2 * most;
    const InodeNumber target = targets[random() % 2];
    if (random() % 10 < (shrink ? 1U : 6U)) {
      const std::string name = NameOf(step, random);
      const uint32_t credits = directory.AddCredits();
      Handle handle = rig.Start(credits + 1);
      const uint32_t before = handle.credits_left();
      const absl::Status status = directory.Add(handle, name, target, kTypeRegular);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_LE(before - handle.credits_left(), credits);
      rig.Store(handle, *inode);
      model[name] = target;
    } else if (!model.empty()) {
      auto victim = model.lower_bound(absl::StrCat("n", random() % (3 * most)));
      if (victim == model.end()) victim = model.begin();
      if (random() % 4 == 0) {
        Handle handle = rig.Start(Directory::kRetargetCredits);
        const absl::Status status = directory.Retarget(handle, victim->first, target, kTypeRegular);
        ASSERT_TRUE(status.ok()) << status;
        victim->second = target;
      } else {
        Handle handle = rig.Start(Directory::kRemoveCredits);
        const absl::Status status = directory.Remove(handle, victim->first);
        ASSERT_TRUE(status.ok()) << status;
        const auto again = directory.Find(victim->first);
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(again->inode, 0U);
        model.erase(victim);
      }
    }
  }
  for (const auto& [name, target] : model) {
    const auto match = directory.Find(name);
    ASSERT_TRUE(match.ok()) << match.status();
    EXPECT_EQ(match->inode, target);
    EXPECT_EQ(match->file_type, rig.geometry().has_filetype() ? kTypeRegular : kTypeUnknown);
  }
  EXPECT_EQ(ListInSteps(directory, 2 * model.size() + 10), model);
  for (const InodeNumber number : targets) {
    const InodeRef file = rig.Load(number);
    MutexLock file_lock(file->mutex);
    file->links = 1;
    for (const auto& [name, target] : model) file->links += target == number ? 1 : 0;
    Handle handle = rig.Start(1);
    rig.Store(handle, *file);
  }
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, DirectoryProperty, testing::Range(1U, 7U));

TEST(Directory, EmptiedDirectoriesShrinkAndANewOneIsSound) {
  const std::vector<uint8_t> image =
      MakeMappingImage(16, "-b 1024 -J size=2 -N 256", "mkdir d\nmkdir e\nwrite /dev/null one\n");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeNumber target = InodeOfPath(image, "/one");
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  Directory directory(&rig.context(), inode.get());
  constexpr uint32_t kNames = 2000;
  for (uint32_t i = 0; i < kNames; ++i) {
    Handle handle = rig.Start(directory.AddCredits() + 1);
    ASSERT_TRUE(
        directory.Add(handle, absl::StrCat("a rather long name with a number in it ", i), target, kTypeRegular).ok());
    rig.Store(handle, *inode);
  }
  EXPECT_GT(inode->size_bytes, 80U * 1024);
  EXPECT_EQ(*directory.IsEmpty(), false);
  for (uint32_t i = kNames; i-- > 0;) {
    Handle handle = rig.Start(1);
    ASSERT_TRUE(directory.Remove(handle, absl::StrCat("a rather long name with a number in it ", i)).ok());
  }
  EXPECT_EQ(*directory.IsEmpty(), true);
  EXPECT_EQ(*directory.Parent(), kRootInode);
  // Its blocks are metadata: freed a few at a time, each with a revoke.
  ExtentTree tree(&rig.context(), inode.get());
  for (bool done = false; !done;) {
    Handle handle = rig.Start(ExtentTree::kTruncateCredits + 1);
    const auto result = tree.TruncateFrom(handle, 1);
    ASSERT_TRUE(result.ok()) << result.status();
    done = *result;
    inode->size_bytes = 1024;
    rig.Store(handle, *inode);
  }
  EXPECT_EQ(inode->blocks_512, 2U);
  // A new directory in place of an old one's content.
  const InodeRef other = rig.Load(InodeOfPath(image, "/e"));
  MutexLock other_lock(other->mutex);
  ExtentTree other_tree(&rig.context(), other.get());
  {
    Handle handle = rig.Start(ExtentTree::kTruncateCredits + 1);
    ASSERT_TRUE(*other_tree.TruncateFrom(handle, 0));
    other->size_bytes = 0;
    rig.Store(handle, *other);
  }
  ExtentTree::InitializeRoot(*other);
  Directory fresh(&rig.context(), other.get());
  {
    Handle handle = rig.Start(Directory::kInitializeCredits + 1);
    const absl::Status status = fresh.InitializeEmpty(handle, kRootInode);
    ASSERT_TRUE(status.ok()) << status;
    rig.Store(handle, *other);
  }
  EXPECT_EQ(*fresh.IsEmpty(), true);
  EXPECT_EQ(Complaints(rig.Finish()), "");
}

TEST(Directory, NamesAndKindsThatAreRefused) {
  const std::vector<uint8_t> image = MakeMappingImage(16, "-b 1024 -J size=2", "mkdir d\nwrite /dev/null one\n");
  MappingRig rig(image);
  ASSERT_TRUE(rig.usable());
  const InodeNumber target = InodeOfPath(image, "/one");
  const InodeRef inode = rig.Load(InodeOfPath(image, "/d"));
  MutexLock lock(inode->mutex);
  Directory directory(&rig.context(), inode.get());
  Handle handle = rig.Start(40);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_EQ(StatusToErrno(directory.Add(handle, name, target, kTypeRegular)), EINVAL);
    EXPECT_EQ(StatusToErrno(directory.Remove(handle, name)), EINVAL);
  }
  EXPECT_EQ(StatusToErrno(directory.Add(handle, std::string(256, 'x'), target, kTypeRegular)), ENAMETOOLONG);
  EXPECT_EQ(StatusToErrno(directory.Find(std::string(256, 'x')).status()), ENAMETOOLONG);
  EXPECT_EQ(StatusToErrno(directory.Add(handle, "x", 0, kTypeRegular)), EINVAL);
  EXPECT_EQ(StatusToErrno(directory.Add(handle, "x", rig.geometry().inode_count + 1, kTypeRegular)), EINVAL);
  EXPECT_EQ(StatusToErrno(directory.Remove(handle, "missing")), ENOENT);
  EXPECT_EQ(StatusToErrno(directory.Retarget(handle, "missing", target, kTypeRegular)), ENOENT);
  EXPECT_TRUE(directory.Add(handle, std::string(255, 'x'), target, kTypeRegular).ok());
  const InodeRef file = rig.Load(target);
  MutexLock file_lock(file->mutex);
  Directory not_one(&rig.context(), file.get());
  EXPECT_EQ(StatusToErrno(not_one.Find("x").status()), ENOTDIR);
}

}  // namespace
}  // namespace elidefs::core::mapping_test
