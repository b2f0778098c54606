// Errors of cold and public paths: an absl::Status that carries the errno a POSIX caller should see.
//
// Completions on the data path carry a plain positive errno instead (blockio::Bio::error). The way back from a
// Status to an errno is `StatusToErrno`, used at the FUSE boundary only.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace elidefs {

// `error` is a positive errno value. The message names the object and, for users, the remedy.
absl::Status ErrnoError(int error, std::string_view message);

// A checksum or a structure on the volume is wrong: EUCLEAN.
absl::Status CorruptionError(std::string_view message);

// The errno inside `status`; for statuses without one, the nearest POSIX value (EIO for kInternal/kUnknown/kDataLoss).
// Returns 0 for OK.
int StatusToErrno(const absl::Status& status);

#define ELIDEFS_RETURN_IF_ERROR(expr)                                                      \
  do {                                                                                     \
    if (absl::Status elidefs_status = (expr); !elidefs_status.ok()) return elidefs_status; \
  } while (false)

#define ELIDEFS_CONCAT_INNER(a, b) a##b
#define ELIDEFS_CONCAT(a, b) ELIDEFS_CONCAT_INNER(a, b)
#define ELIDEFS_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = *std::move(tmp)
#define ELIDEFS_ASSIGN_OR_RETURN(lhs, expr) \
  ELIDEFS_ASSIGN_OR_RETURN_IMPL(ELIDEFS_CONCAT(elidefs_statusor_, __LINE__), lhs, expr)

}  // namespace elidefs
