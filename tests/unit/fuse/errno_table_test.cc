#include "fuse/errno_table.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"

namespace elidefs::fuse {
namespace {

TEST(ErrnoTableTest, UsualErrorsPass) {
  for (const int error : {0, EPERM, ENOENT, EIO, EEXIST, ENOTDIR, EISDIR, EINVAL, EFBIG, ENOSPC, EROFS, EMLINK,
                          ENAMETOOLONG, ENOTEMPTY, EOPNOTSUPP, EUCLEAN, ESTALE, EDQUOT}) {
    EXPECT_EQ(ReplyErrno(error), error);
  }
}

TEST(ErrnoTableTest, NeverTellsTheKernelToStopAsking) {
  EXPECT_EQ(ReplyErrno(ENOSYS), EOPNOTSUPP);
}

TEST(ErrnoTableTest, EveryReplyIsOneTheKernelAccepts) {
  for (int error = -600; error <= 2000; ++error) {
    const int reply = ReplyErrno(error);
    EXPECT_GE(reply, error == 0 ? 0 : 1) << error;
    EXPECT_LT(reply, 512) << error;
    EXPECT_NE(reply, ENOSYS) << error;
  }
}

TEST(ErrnoTableTest, StatusesKeepTheirErrno) {
  EXPECT_EQ(ReplyErrno(absl::OkStatus()), 0);
  EXPECT_EQ(ReplyErrno(ErrnoError(ENOTEMPTY, "x")), ENOTEMPTY);
  EXPECT_EQ(ReplyErrno(CorruptionError("x")), EUCLEAN);
  EXPECT_EQ(ReplyErrno(ErrnoError(ENOSYS, "x")), EOPNOTSUPP);
  EXPECT_EQ(ReplyErrno(absl::InternalError("x")), EIO);
  EXPECT_EQ(ReplyErrno(absl::UnimplementedError("x")), EOPNOTSUPP);
}

}  // namespace
}  // namespace elidefs::fuse
