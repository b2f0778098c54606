// Conversions at the FUSE boundary: open flags, attributes, node numbers, what is asked of the kernel.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "fuse/attributes.h"
#include "fuse/data_ops.h"
#include "fuse/session.h"

namespace elidefs::fuse {
namespace {

TEST(OpenFlagsTest, AccessModes) {
  EXPECT_EQ(MakeOpenFlags(O_RDONLY, false), kOpenRead);
  EXPECT_EQ(MakeOpenFlags(O_WRONLY, false), kOpenWrite);
  EXPECT_EQ(MakeOpenFlags(O_RDWR, false), kOpenRead | kOpenWrite);
}

TEST(OpenFlagsTest, TheWritebackCacheReadsThroughWriters) {
  EXPECT_EQ(MakeOpenFlags(O_WRONLY, true), kOpenRead | kOpenWrite);
}

TEST(OpenFlagsTest, SynchronousWrites) {
  EXPECT_EQ(MakeOpenFlags(O_WRONLY | O_SYNC, false), kOpenWrite | kOpenSync);
  EXPECT_EQ(MakeOpenFlags(O_WRONLY | O_DSYNC, false), kOpenWrite | kOpenDataSync);
}

TEST(OpenFlagsTest, TheKernelAppendsAndTruncates) {
  EXPECT_EQ(MakeOpenFlags(O_WRONLY | O_APPEND | O_TRUNC | O_CREAT | O_DIRECT, false), kOpenWrite);
}

TEST(NodeTest, TheRootIsOneForFuseAndTwoForTheVolume) {
  EXPECT_EQ(InodeOf(FUSE_ROOT_ID), kRootInodeId);
  EXPECT_EQ(NodeOf(kRootInodeId), static_cast<fuse_ino_t>(FUSE_ROOT_ID));
  EXPECT_EQ(InodeOf(12), 12U);
  EXPECT_EQ(NodeOf(12), 12U);
  EXPECT_NE(InodeOf(2), kRootInodeId) << "two nodes must not be one inode";
}

TEST(AttributeChangeTest, Fields) {
  struct stat wanted = {};
  wanted.st_mode = 0640;
  wanted.st_uid = 5;
  wanted.st_size = 1LL << 40U;
  wanted.st_mtim = {7, 8};
  const AttributeChange change =
      MakeAttributeChange(wanted, FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME);
  EXPECT_EQ(change.fields,
            AttributeChange::kMode | AttributeChange::kUid | AttributeChange::kSize | AttributeChange::kMtime);
  EXPECT_EQ(change.mode, 0640U);
  EXPECT_EQ(change.uid, 5U);
  EXPECT_EQ(change.size_bytes, 1ULL << 40U);
  EXPECT_EQ(change.mtime.tv_sec, 7);
  EXPECT_EQ(change.mtime.tv_nsec, 8);
}

TEST(AttributeChangeTest, NowReplacesTheValue) {
  const AttributeChange change =
      MakeAttributeChange({}, FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
                                  FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_CTIME);
  EXPECT_EQ(change.fields, AttributeChange::kAtimeNow | AttributeChange::kMtimeNow | AttributeChange::kCtime);
}

TEST(AttributeChangeTest, ExplanatoryBitsChangeNothing) {
  EXPECT_EQ(MakeAttributeChange({}, FUSE_SET_ATTR_FILE | FUSE_SET_ATTR_OPEN | FUSE_SET_ATTR_FORCE).fields, 0U);
}

TEST(NegotiationTest, AsksForWhatTheKernelHas) {
  fuse_conn_info connection = {};
  connection.capable = ~0U;
  connection.want = FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_ATOMIC_O_TRUNC;
  NegotiateConnection(false, &connection);
  EXPECT_EQ(connection.want &
                (FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_READ |
                 FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_NO_OPEN_SUPPORT),
            0U);
  EXPECT_NE(connection.want & FUSE_CAP_EXPORT_SUPPORT, 0U);
  EXPECT_EQ(connection.max_write, 1U << 20U);
  NegotiateConnection(true, &connection);
  EXPECT_NE(connection.want & FUSE_CAP_WRITEBACK_CACHE, 0U);
  connection.capable = 0;
  NegotiateConnection(true, &connection);
  EXPECT_EQ(connection.want, 0U);
}

}  // namespace
}  // namespace elidefs::fuse
