#include "fuse/mount_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace elidefs::fuse {
namespace {

constexpr char kTable[] =
    R"(22 1 254:0 / / rw,relatime - ext4 /dev/root rw
23 22 0:42 / /mnt/a\040b rw,nosuid,nodev,relatime shared:5 master:3 - fuse.elidefs /tmp/a\134b rw,user_id=1000,group_id=0
24 22 0:43 / /mnt/c rw - fuse.elidefs /dev/loop1 ro,user_id=0,allow_other
25 24 0:44 / /mnt/c rw - tmpfs tmpfs rw
garbage
26 22 0:x / /mnt/d rw - tmpfs tmpfs rw
27 22 0:45 / /mnt/e rw
)";

TEST(MountTableTest, Parses) {
  const std::vector<MountEntry> table = ParseMountTable(kTable);
  ASSERT_EQ(table.size(), 4U);
  EXPECT_EQ(table[1].device, makedev(0, 42));
  EXPECT_EQ(table[1].mountpoint, "/mnt/a b");
  EXPECT_EQ(table[1].source, "/tmp/a\\b");
  EXPECT_EQ(table[1].owner, 1000U);
  EXPECT_TRUE(table[1].IsElidefs());
  EXPECT_FALSE(table[0].IsElidefs());
}

TEST(MountTableTest, FindsTheTopmostMount) {
  const std::vector<MountEntry> table = ParseMountTable(kTable);
  ASSERT_NE(FindMount(table, "/mnt/c"), nullptr);
  EXPECT_EQ(FindMount(table, "/mnt/c")->type, "tmpfs");
  EXPECT_EQ(FindMount(table, "/mnt"), nullptr);
}

TEST(MountTableTest, ReadsTheRealTable) {
  const absl::StatusOr<std::vector<MountEntry>> table = ReadMountTable();
  ASSERT_TRUE(table.ok());
  EXPECT_NE(FindMount(*table, "/"), nullptr);
}

TEST(MountTableTest, ResolvesNames) {
  char folder[] = "/tmp/elidefs_test_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string link = std::string(folder) + "/link";
  ASSERT_EQ(symlink("/proc", link.c_str()), 0);
  EXPECT_EQ(*ResolveMountPoint("/proc/"), "/proc");
  EXPECT_EQ(*ResolveMountPoint(link), "/proc");
  EXPECT_EQ(*ResolveMountPoint("/proc/self/../"), "/proc");
  EXPECT_EQ(*ResolveMountPoint("/"), "/");
  EXPECT_EQ(StatusToErrno(ResolveMountPoint(link + "/../none/x").status()), ENOENT);
  EXPECT_EQ(StatusToErrno(FindElidefsMount("/proc").status()), EINVAL);
  EXPECT_EQ(StatusToErrno(FindElidefsMount(folder).status()), EINVAL);
  unlink(link.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace elidefs::fuse
