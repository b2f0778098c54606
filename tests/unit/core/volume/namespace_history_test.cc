// Random namespace histories against a model in memory; what is left must satisfy e2fsck and look the same to the
// kernel.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/test_image.h"
#include "tests/unit/core/volume/namespace_rig.h"

namespace elidefs::test_support {
namespace {

constexpr uint64_t kImageBytes = uint64_t{16} << 20U;

struct HistoryKind {
  const char* name;
  const char* options;
  size_t inode_cache_limit;
};

// Performs each step on the volume and on the model, which says what errno must come.
class History {
 public:
  History(Volume* volume, uint64_t seed) : volume_(*volume), random_(seed), root_(std::make_shared<ModelNode>()) {
    const struct stat attributes = *volume_.GetAttributes(kRootInodeId);
    root_->inode = kRootInodeId;
    root_->mode = attributes.st_mode;
    root_->links = static_cast<uint32_t>(attributes.st_nlink);
    directories_.push_back(root_);
  }

  void Step() {
    switch (Pick(13)) {
      case 0:
      case 1:
        return MakeNode();
      case 2:
      case 3:
        return MakeDirectory();
      case 4:
        return MakeSymlink();
      case 5:
        return Link();
      case 6:
      case 7:
        return Remove();
      case 8:
      case 9:
      case 10:
        return Rename();
      case 11:
        return Change();
      default:
        return HoldAndRelease();
    }
  }
  const ModelNode& root() const { return *root_; }
  void ReleaseAll() {
    for (const InodeId inode : held_) volume_.Forget(inode, 1);
    held_.clear();
  }

 private:
  size_t Pick(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }
  ModelRef PickDirectory() { return directories_[Pick(directories_.size())]; }
  // Few names, so that they meet; some fill blocks.
  std::string PickName() {
    const std::string name = absl::StrCat("n", Pick(12));
    return Pick(4) == 0 ? name + std::string(100 + Pick(150), 'x') : name;
  }
  Credentials PickOwner() {
    return {.uid = static_cast<uint32_t>(Pick(3) * 50000), .gid = static_cast<uint32_t>(Pick(3) * 70000)};
  }
  static ModelRef At(const ModelNode& directory, const std::string& name) {
    const auto found = directory.names.find(name);
    return found == directory.names.end() ? nullptr : found->second;
  }
  static bool IsAbove(const ModelNode& ancestor, const ModelNode& directory) {
    if (&ancestor == &directory) return true;
    for (const auto& [name, child] : ancestor.names) {
      if (child->IsDirectory() && IsAbove(*child, directory)) return true;
    }
    return false;
  }

  void Created(const ModelRef& directory, const std::string& name, uint32_t mode, const Credentials& owner,
               const absl::StatusOr<Entry>& entry, const ModelRef& node) {
    if (At(*directory, name) != nullptr) {
      EXPECT_EQ(ErrnoOf(entry.status()), EEXIST);
      return;
    }
    ASSERT_TRUE(entry.ok()) << entry.status();
    node->inode = entry->inode;
    node->mode = mode;
    node->uid = owner.uid;
    node->gid = owner.gid;
    if ((directory->mode & S_ISGID) != 0) {
      node->gid = directory->gid;
      if (node->IsDirectory()) node->mode |= S_ISGID;
    }
    node->links = node->IsDirectory() ? 2 : 1;
    EXPECT_EQ(entry->attributes.st_mode, node->mode);
    EXPECT_EQ(entry->attributes.st_rdev, node->device);
    EXPECT_EQ(entry->attributes.st_ino, entry->inode);
    directory->names[name] = node;
    if (node->IsDirectory()) {
      ++directory->links;
      directories_.push_back(node);
    }
    volume_.Forget(entry->inode, 1);
  }

  void MakeNode() {
    static constexpr uint32_t kTypes[] = {S_IFREG, S_IFREG, S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK};
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const auto mode = static_cast<uint32_t>(kTypes[Pick(std::size(kTypes))] | Pick(07777));
    const Credentials owner = PickOwner();
    const auto node = std::make_shared<ModelNode>();
    if (S_ISCHR(mode) || S_ISBLK(mode)) node->device = makedev(1 + Pick(4095), Pick(1U << Pick(21)));
    Created(directory, name, mode, owner, volume_.MakeNode(directory->inode, name, mode, node->device, owner), node);
  }

  void MakeDirectory() {
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const auto mode = static_cast<uint32_t>(Pick(07777));
    const Credentials owner = PickOwner();
    Created(directory, name, S_IFDIR | mode, owner, volume_.MakeDirectory(directory->inode, name, mode, owner),
            std::make_shared<ModelNode>());
  }

  void MakeSymlink() {
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const Credentials owner = PickOwner();
    const auto node = std::make_shared<ModelNode>();
    node->target = std::string(Pick(2) == 0 ? 1 + Pick(70) : 1 + Pick(1023), 't');
    node->size_bytes = node->target.size();
    Created(directory, name, S_IFLNK | 0777, owner, volume_.MakeSymlink(directory->inode, name, node->target, owner),
            node);
  }

  void Link() {
    const ModelRef from = PickDirectory();
    if (from->names.empty()) return;
    const ModelRef node = std::next(from->names.begin(), static_cast<std::ptrdiff_t>(Pick(from->names.size())))->second;
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const absl::StatusOr<Entry> entry = volume_.Link(node->inode, directory->inode, name);
    const int expected = node->IsDirectory() ? EPERM : At(*directory, name) != nullptr ? EEXIST : 0;
    ASSERT_EQ(ErrnoOf(entry.status()), expected) << entry.status();
    if (expected != 0) return;
    directory->names[name] = node;
    ++node->links;
    EXPECT_EQ(entry->attributes.st_nlink, node->links);
    volume_.Forget(node->inode, 1);
  }

  void Gone(ModelNode& parent, const ModelRef& node) {
    if (!node->IsDirectory()) {
      --node->links;
      return;
    }
    node->links = 0;
    --parent.links;
    directories_.erase(std::find(directories_.begin(), directories_.end(), node));
  }

  void Remove() {
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const ModelRef node = At(*directory, name);
    const bool as_directory = Pick(2) == 0;
    int expected = 0;
    if (node == nullptr) {
      expected = ENOENT;
    } else if (as_directory) {
      expected = !node->IsDirectory() ? ENOTDIR : node->names.empty() ? 0 : ENOTEMPTY;
    } else if (node->IsDirectory()) {
      expected = EISDIR;
    }
    const absl::Status status =
        as_directory ? volume_.RemoveDirectory(directory->inode, name) : volume_.Unlink(directory->inode, name);
    ASSERT_EQ(ErrnoOf(status), expected) << status;
    if (expected != 0) return;
    directory->names.erase(name);
    Gone(*directory, node);
  }

  static int RenameError(const ModelNode& to, const ModelRef& node, const ModelRef& victim, const ModelNode& from,
                         bool no_replace) {
    if (node == nullptr) return ENOENT;
    if (node->IsDirectory() && IsAbove(*node, to)) return EINVAL;
    if (victim == nullptr) return 0;
    if (no_replace) return EEXIST;
    if (victim->IsDirectory() && &from != &to && IsAbove(*victim, from)) return ENOTEMPTY;
    if (victim == node) return 0;
    if (node->IsDirectory() && !victim->IsDirectory()) return ENOTDIR;
    if (!node->IsDirectory() && victim->IsDirectory()) return EISDIR;
    return victim->names.empty() ? 0 : ENOTEMPTY;
  }

  void Rename() {
    const ModelRef from = PickDirectory();
    const ModelRef to = Pick(3) == 0 ? from : PickDirectory();
    const std::string old_name = PickName();
    const std::string new_name = PickName();
    const ModelRef node = At(*from, old_name);
    const ModelRef victim = At(*to, new_name);
    const bool no_replace = Pick(5) == 0;
    const int expected = RenameError(*to, node, victim, *from, no_replace);
    const absl::Status status = volume_.Rename(from->inode, old_name, to->inode, new_name,
                                               no_replace ? static_cast<uint32_t>(kRenameNoReplace) : 0U);
    ASSERT_EQ(ErrnoOf(status), expected) << status;
    if (expected != 0 || node == victim) return;
    if (victim != nullptr) Gone(*to, victim);
    from->names.erase(old_name);
    to->names[new_name] = node;
    if (node->IsDirectory() && from != to) {
      --from->links;
      ++to->links;
    }
  }

  void Change() {
    const ModelRef directory = PickDirectory();
    const ModelRef node = At(*directory, PickName());
    if (node == nullptr) return;
    AttributeChange change;
    switch (Pick(3)) {
      case 0:
        if (S_ISLNK(node->mode)) return;
        change.fields = AttributeChange::kMode;
        change.mode = static_cast<uint32_t>(Pick(07777));
        node->mode = (node->mode & S_IFMT) | change.mode;
        break;
      case 1:
        change.fields = AttributeChange::kUid | AttributeChange::kGid | AttributeChange::kMode;
        change.mode = node->mode;
        node->uid = change.uid = static_cast<uint32_t>(Pick(100000));
        node->gid = change.gid = static_cast<uint32_t>(Pick(100000));
        break;
      default:
        if (!S_ISREG(node->mode)) return;
        change.fields = AttributeChange::kSize;
        node->size_bytes = change.size_bytes = Pick(10000);
        break;
    }
    const absl::StatusOr<struct stat> attributes = volume_.SetAttributes(node->inode, change);
    ASSERT_TRUE(attributes.ok()) << attributes.status();
    EXPECT_EQ(attributes->st_mode, node->mode);
    EXPECT_EQ(attributes->st_uid, node->uid);
  }

  // Inodes that are in use while their names go.
  void HoldAndRelease() {
    const ModelRef directory = PickDirectory();
    const std::string name = PickName();
    const absl::StatusOr<Entry> entry = volume_.Lookup(directory->inode, name);
    const ModelRef node = At(*directory, name);
    ASSERT_EQ(ErrnoOf(entry.status()), node == nullptr ? ENOENT : 0) << entry.status();
    if (node != nullptr) {
      EXPECT_EQ(entry->inode, node->inode);
      EXPECT_EQ(entry->attributes.st_nlink, node->links);
      held_.push_back(entry->inode);
    }
    if (held_.size() > 10) {
      EXPECT_TRUE(volume_.GetAttributes(held_.front()).ok());
      volume_.Forget(held_.front(), 1);
      held_.erase(held_.begin());
    }
  }

  Volume& volume_;
  std::mt19937_64 random_;
  ModelRef root_;
  std::vector<ModelRef> directories_;
  std::vector<InodeId> held_;
};

class NamespaceHistoryTest : public testing::TestWithParam<HistoryKind> {};

TEST_P(NamespaceHistoryTest, AgreesWithModelAndKernel) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const std::vector<uint8_t> image = MakeImage(kImageBytes, GetParam().options);
  MountedImage first(image, GetParam().inode_cache_limit);
  History history(&first.volume(), seed);
  for (int step = 0; step < 1500 && !HasFatalFailure(); ++step) history.Step();
  ASSERT_FALSE(HasFatalFailure());
  const std::vector<std::string> expected = ListModel(history.root());
  EXPECT_EQ(ListVolume(first.volume()), expected);
  history.ReleaseAll();
  const std::vector<uint8_t> left = first.Unmount();
  EXPECT_EQ(Complaints(left), "");
  EXPECT_EQ(ListByKernel(left), expected);

  MountedImage second(left);
  EXPECT_EQ(ListVolume(second.volume()), expected);
  EXPECT_EQ(Complaints(second.Unmount()), "");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, NamespaceHistoryTest,
    testing::Values(HistoryKind{"blocks_1k", "-t ext4 -b 1024", 16384},
                    HistoryKind{"blocks_4k", "-t ext4 -b 4096", 16384},
                    HistoryKind{"small_cache", "-t ext4 -b 1024", 4},
                    HistoryKind{"old_format", "-t ext4 -b 1024 -I 128 -O ^metadata_csum,^64bit,^uninit_bg", 16384},
                    HistoryKind{"orphan_file", "-t ext4 -b 1024 -O orphan_file", 16384}),
    [](const testing::TestParamInfo<HistoryKind>& info) { return info.param.name; });

// Threads that move directories about under each other: nobody waits for ever, and the result is sound.
TEST(NamespaceThreadsTest, ConcurrentChangesStaySound) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  MountedImage mounted(MakeImage(kImageBytes, "-t ext4 -b 1024"), 8);
  Volume& volume = mounted.volume();
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&volume, random = std::mt19937_64(seed + number)]() mutable {
      const auto path = [&random] {
        std::string text;
        for (uint64_t depth = 1 + random() % 3; depth > 0; --depth) absl::StrAppend(&text, "/d", random() % 3);
        return text;
      };
      for (int step = 0; step < 600; ++step) {
        const absl::StatusOr<Entry> one = volume.LookupPath(path());
        const absl::StatusOr<Entry> other = volume.LookupPath(random() % 4 == 0 ? "/" : path());
        const InodeId from = one.ok() ? one->inode : kRootInodeId;
        const InodeId to = other.ok() ? other->inode : kRootInodeId;
        const std::string name = absl::StrCat("d", random() % 3);
        const std::string file = absl::StrCat("f", random() % 3);
        absl::StatusOr<Entry> made;
        switch (random() % 6) {
          case 0:
            made = volume.MakeDirectory(from, name, 0755, {});
            break;
          case 1:
            made = volume.MakeNode(from, file, S_IFREG | 0644, 0, {});
            if (made.ok()) {
              if (const auto link = volume.Link(made->inode, to, file + "l"); link.ok()) volume.Forget(link->inode, 1);
            }
            break;
          case 2:
            volume.Rename(from, name, to, absl::StrCat("d", random() % 3), 0).IgnoreError();
            break;
          case 3:
            volume.Rename(from, file, to, absl::StrCat("f", random() % 3), 0).IgnoreError();
            break;
          case 4:
            volume.RemoveDirectory(from, name).IgnoreError();
            break;
          default:
            volume.Unlink(from, file).IgnoreError();
            break;
        }
        if (made.ok()) volume.Forget(made->inode, 1);
        if (one.ok()) volume.Forget(from, 1);
        if (other.ok()) volume.Forget(to, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(volume.read_only());
  const std::vector<std::string> seen = ListVolume(volume);
  const std::vector<uint8_t> left = mounted.Unmount();
  EXPECT_EQ(Complaints(left), "");
  EXPECT_EQ(ListByKernel(left), seen);
}

}  // namespace
}  // namespace elidefs::test_support
