// File system calls through the kernel and the daemon to a volume in memory.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>
#include <thread>

#include "tests/unit/fuse/mount_fixture.h"

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;

// The errno of a call that should fail, 0 if it succeeded.
#define ERRNO_OF(call) ((call) < 0 ? errno : 0)

class MountOperationsTest : public MountTest {
 protected:
  void SetUp() override {
    MountTest::SetUp();
    const CommandResult mount = Mount();
    ASSERT_EQ(mount.status, 0) << mount.output;
  }
  void TearDown() override {
    const CommandResult unmount = UnmountCommand();
    EXPECT_EQ(unmount.status, 0) << unmount.output;
    EXPECT_THAT(ClosedReport(), HasSubstr("open files 0"));
    MountTest::TearDown();
  }
  int Create(const std::string& name, int flags = O_RDWR) { return open(Path(name).c_str(), flags | O_CREAT, 0640); }
};

TEST_F(MountOperationsTest, DataComesBack) {
  const int fd = Create("file");
  ASSERT_GE(fd, 0);
  std::string data(3U << 20U, 'a');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 4096);
  ASSERT_EQ(write(fd, data.data(), data.size()), static_cast<ssize_t>(data.size()));
  struct stat attributes = {};
  ASSERT_EQ(fstat(fd, &attributes), 0);
  EXPECT_EQ(attributes.st_size, static_cast<off_t>(data.size()));
  ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  std::string back(data.size(), 'x');
  ASSERT_EQ(pread(fd, back.data(), back.size(), 0), static_cast<ssize_t>(back.size()));
  EXPECT_TRUE(back == data);
  EXPECT_EQ(pread(fd, back.data(), 10, static_cast<off_t>(data.size()) - 4), 4) << "short at the end";
  close(fd);
}

TEST_F(MountOperationsTest, DirectIo) {
  const int fd = Create("direct", O_RDWR | O_DIRECT);
  ASSERT_GE(fd, 0);
  alignas(4096) char buffer[8192];
  memset(buffer, 'd', sizeof(buffer));
  EXPECT_EQ(pwrite(fd, buffer, sizeof(buffer), 4096), static_cast<ssize_t>(sizeof(buffer)));
  memset(buffer, 0, sizeof(buffer));
  EXPECT_EQ(pread(fd, buffer, sizeof(buffer), 8192), 4096);
  EXPECT_EQ(buffer[0], 'd');
  close(fd);
}

TEST_F(MountOperationsTest, AppendAndTruncate) {
  int fd = Create("file", O_WRONLY | O_APPEND);
  ASSERT_EQ(write(fd, "abc", 3), 3);
  ASSERT_EQ(pwrite(fd, "def", 3, 0), 3);
  close(fd);
  struct stat attributes = {};
  ASSERT_EQ(stat(Path("file").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_size, 6);
  fd = open(Path("file").c_str(), O_RDWR | O_TRUNC);
  ASSERT_EQ(fstat(fd, &attributes), 0);
  EXPECT_EQ(attributes.st_size, 0);
  ASSERT_EQ(ftruncate(fd, 100), 0);
  ASSERT_EQ(fstat(fd, &attributes), 0);
  EXPECT_EQ(attributes.st_size, 100);
  close(fd);
}

TEST_F(MountOperationsTest, SyncsArrive) {
  const int fd = Create("file");
  ASSERT_EQ(write(fd, "abc", 3), 3);
  EXPECT_EQ(fdatasync(fd), 0);
  EXPECT_EQ(fsync(fd), 0);
  EXPECT_EQ(fsync(fd), 0);
  close(fd);
  const int directory = open(mountpoint_.c_str(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(fsync(directory), 0);
  close(directory);
  const int synchronous = open(Path("file").c_str(), O_WRONLY | O_DSYNC);
  ASSERT_EQ(write(synchronous, "abc", 3), 3);
  close(synchronous);
  const CommandResult statistics = StatCommand(true);
  EXPECT_THAT(statistics.output, HasSubstr("\"fsync_calls\": 2,"));
  EXPECT_THAT(statistics.output, HasSubstr("\"directory_calls\": 1,"));
  EXPECT_THAT(statistics.output, HasSubstr("\"o_sync_writes\": 1,"));
}

TEST_F(MountOperationsTest, ASyncThatFailsFailsEveryTime) {
  for (const char* name : {"sync-fails", "sync-is-odd"}) {
    const int fd = Create(name);
    ASSERT_GE(fd, 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ERRNO_OF(fsync(fd)), std::string(name) == "sync-fails" ? EOPNOTSUPP : EIO);
    }
    EXPECT_EQ(close(fd), 0);
  }
}

TEST_F(MountOperationsTest, ErrorsReachTheCaller) {
  const int fd = Create("write-fails");
  EXPECT_EQ(ERRNO_OF(write(fd, "abc", 3)), EIO);
  EXPECT_EQ(close(fd), 0) << "close consumes no error";
  EXPECT_EQ(ERRNO_OF(Create("open-fails")), EIO);
  EXPECT_EQ(ERRNO_OF(open(Path("none").c_str(), O_RDONLY)), ENOENT);
  EXPECT_EQ(ERRNO_OF(open(Path("none").c_str(), O_RDONLY)), ENOENT);
  EXPECT_EQ(ERRNO_OF(Create(std::string(300, 'n'))), ENAMETOOLONG);
  EXPECT_EQ(ERRNO_OF(mkdir(Path("write-fails").c_str(), 0755)), EEXIST);
}

TEST_F(MountOperationsTest, WhatIsNotBuiltSaysSo) {
  const int fd = Create("file");
  EXPECT_EQ(ERRNO_OF(fallocate(fd, 0, 0, 4096)), EOPNOTSUPP);
  EXPECT_EQ(ERRNO_OF(setxattr(Path("file").c_str(), "user.a", "b", 1, 0)), EOPNOTSUPP);
  EXPECT_EQ(ERRNO_OF(getxattr(Path("file").c_str(), "user.a", nullptr, 0)), EOPNOTSUPP);
  ASSERT_EQ(write(fd, "abc", 3), 3);
  EXPECT_EQ(lseek(fd, 0, SEEK_HOLE), 3) << "without LSEEK the kernel takes the file as one piece of data";
  close(fd);
}

TEST_F(MountOperationsTest, NamesComeAndGo) {
  ASSERT_EQ(mkdir(Path("dir").c_str(), 0750), 0);
  EXPECT_EQ(mkdir(Path("dir/sub").c_str(), 0750), 0);
  EXPECT_EQ(ERRNO_OF(rmdir(Path("dir").c_str())), ENOTEMPTY);
  EXPECT_EQ(rmdir(Path("dir/sub").c_str()), 0);
  ASSERT_EQ(symlink("some/where", Path("link").c_str()), 0);
  char target[64] = {};
  EXPECT_EQ(readlink(Path("link").c_str(), target, sizeof(target)), 10);
  EXPECT_STREQ(target, "some/where");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(mknod(Path("device").c_str(), S_IFBLK | 0600, makedev(259, 70000)), 0);
  }
  struct stat attributes = {};
  ASSERT_EQ(stat(Path("fifo").c_str(), &attributes), 0);
  EXPECT_TRUE(S_ISFIFO(attributes.st_mode));
  if (geteuid() == 0) {
    ASSERT_EQ(stat(Path("device").c_str(), &attributes), 0);
    EXPECT_EQ(attributes.st_rdev, makedev(259, 70000));
  }
  close(Create("file"));
  ASSERT_EQ(link(Path("file").c_str(), Path("dir/second").c_str()), 0);
  ASSERT_EQ(stat(Path("file").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_nlink, 2U);
  EXPECT_EQ(unlink(Path("file").c_str()), 0);
  EXPECT_EQ(ERRNO_OF(stat(Path("file").c_str(), &attributes)), ENOENT);
  ASSERT_EQ(stat(Path("dir/second").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_nlink, 1U);
}

TEST_F(MountOperationsTest, Rename) {
  close(Create("a"));
  close(Create("b"));
  const auto rename_with = [&](const char* from, const char* to, unsigned flags) {
    return ERRNO_OF(renameat2(AT_FDCWD, Path(from).c_str(), AT_FDCWD, Path(to).c_str(), flags));
  };
  EXPECT_EQ(rename_with("a", "b", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(rename_with("a", "b", RENAME_EXCHANGE), EINVAL);
  EXPECT_EQ(rename_with("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(rename_with("c", "b", 0), 0);
  EXPECT_NE(access(Path("c").c_str(), F_OK), 0);
  EXPECT_EQ(access(Path("b").c_str(), F_OK), 0);
}

TEST_F(MountOperationsTest, Attributes) {
  close(Create("file"));
  const std::string path = Path("file");
  struct stat attributes = {};
  ASSERT_EQ(chmod(path.c_str(), 0604), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12, 34), 0);
  }
  const timespec times[2] = {{1000, 1}, {2000, 999999999}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  ASSERT_EQ(stat(path.c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode, S_IFREG | 0604U);
  if (geteuid() == 0) {
    EXPECT_EQ(attributes.st_uid, 12U);
    EXPECT_EQ(attributes.st_gid, 34U);
  }
  EXPECT_EQ(attributes.st_atim.tv_nsec, 1);
  EXPECT_EQ(attributes.st_mtim.tv_sec, 2000);
  EXPECT_EQ(attributes.st_mtim.tv_nsec, 999999999);
  struct statvfs space = {};
  ASSERT_EQ(statvfs(mountpoint_.c_str(), &space), 0);
  EXPECT_EQ(space.f_frsize, 4096U);
  EXPECT_EQ(space.f_blocks, 1000U);
  EXPECT_EQ(space.f_bavail, 500U);
  EXPECT_EQ(space.f_files, 64U);
  EXPECT_EQ(space.f_namemax, 255U);
}

TEST_F(MountOperationsTest, ListsLongDirectories) {
  std::set<std::string> expected = {".", ".."};
  for (int i = 0; i < 1000; ++i) {
    expected.insert("a-rather-long-name-" + std::to_string(i));
    close(Create("a-rather-long-name-" + std::to_string(i)));
  }
  close(Create("unreadable"));  // its inode cannot be read: it is listed all the same
  expected.insert("unreadable");
  std::multiset<std::string> found;
  DIR* stream = opendir(mountpoint_.c_str());
  ASSERT_NE(stream, nullptr);
  for (const dirent* entry = readdir(stream); entry != nullptr; entry = readdir(stream)) {
    found.insert(entry->d_name);
    struct stat attributes = {};
    if (std::string(entry->d_name) == "..") continue;  // belongs to the folder above
    ASSERT_EQ(fstatat(dirfd(stream), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW), 0);
    EXPECT_EQ(attributes.st_ino, entry->d_ino);
    EXPECT_EQ(entry->d_type, S_ISDIR(attributes.st_mode) ? DT_DIR : DT_REG);
  }
  EXPECT_EQ(found, std::multiset<std::string>(expected.begin(), expected.end()));
  rewinddir(stream);
  EXPECT_NE(readdir(stream), nullptr);
  closedir(stream);
}

TEST_F(MountOperationsTest, UnlinkedFilesStayUsable) {
  const int fd = Create("file");
  ASSERT_EQ(unlink(Path("file").c_str()), 0);
  EXPECT_EQ(pwrite(fd, "abc", 3, 0), 3);
  char buffer[4] = {};
  EXPECT_EQ(pread(fd, buffer, 3, 0), 3);
  struct stat attributes = {};
  ASSERT_EQ(fstat(fd, &attributes), 0);
  EXPECT_EQ(attributes.st_nlink, 0U);
  close(fd);
}

TEST_F(MountOperationsTest, ManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([this, t] {
      for (int round = 0; round < 20; ++round) {
        const std::string name = "file" + std::to_string(t) + "-" + std::to_string(round);
        const int fd = Create(name);
        char buffer[4096];
        memset(buffer, t, sizeof(buffer));
        for (int i = 0; i < 4; ++i) EXPECT_EQ(pwrite(fd, buffer, sizeof(buffer), i * 4096), 4096);
        EXPECT_EQ(fdatasync(fd), 0);
        EXPECT_EQ(close(fd), 0);
        EXPECT_EQ(unlink(Path(name).c_str()), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace elidefs::fuse
