#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace elidefs {
namespace {

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return ErrnoError(EDOM, "odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  ELIDEFS_ASSIGN_OR_RETURN(const int half, Half(number));
  ELIDEFS_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(Error, EveryErrnoComesBack) {
  for (int error = 1; error < 134; ++error) {
    const absl::Status status = ErrnoError(error, "message");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(StatusToErrno(status), error);
    EXPECT_EQ(status.message(), "message");
  }
}

TEST(Error, Corruption) {
  EXPECT_EQ(StatusToErrno(CorruptionError("block 7")), EUCLEAN);
}

TEST(Error, StatusesWithoutAnErrno) {
  EXPECT_EQ(StatusToErrno(absl::OkStatus()), 0);
  EXPECT_EQ(StatusToErrno(absl::NotFoundError("")), ENOENT);
  EXPECT_EQ(StatusToErrno(absl::InvalidArgumentError("")), EINVAL);
  EXPECT_EQ(StatusToErrno(absl::PermissionDeniedError("")), EACCES);
  EXPECT_EQ(StatusToErrno(absl::UnimplementedError("")), EOPNOTSUPP);
  EXPECT_EQ(StatusToErrno(absl::InternalError("")), EIO);
  EXPECT_EQ(StatusToErrno(absl::DataLossError("")), EIO);
}

TEST(Error, Macros) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(StatusToErrno(Quarter(6).status()), EDOM);
}

}  // namespace
}  // namespace elidefs
