#include "base/error.h"

#include <cerrno>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace elidefs {
namespace {

constexpr absl::string_view kErrnoPayload = "elidefs/errno";

}  // namespace

absl::Status ErrnoError(int error, std::string_view message) {
  absl::Status status(absl::ErrnoToStatusCode(error), absl::string_view(message.data(), message.size()));
  status.SetPayload(kErrnoPayload, absl::Cord(std::to_string(error)));
  return status;
}

absl::Status CorruptionError(std::string_view message) {
  return ErrnoError(EUCLEAN, message);
}

int StatusToErrno(const absl::Status& status) {
  if (status.ok()) return 0;
  if (const auto payload = status.GetPayload(kErrnoPayload); payload.has_value()) {
    int error = 0;
    if (absl::SimpleAtoi(std::string(*payload), &error) && error > 0) return error;
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ENOENT;
    case absl::StatusCode::kAlreadyExists:
      return EEXIST;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
      return EACCES;
    case absl::StatusCode::kResourceExhausted:
      return ENOSPC;
    case absl::StatusCode::kUnimplemented:
      return EOPNOTSUPP;
    case absl::StatusCode::kUnavailable:
      return EAGAIN;
    case absl::StatusCode::kCancelled:
      return EINTR;
    case absl::StatusCode::kDeadlineExceeded:
      return ETIMEDOUT;
    default:
      return EIO;
  }
}

}  // namespace elidefs
