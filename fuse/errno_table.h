// The one place where results of the library become errno values that the kernel accepts as a FUSE reply (rule D8).
#pragma once

#include "absl/status/status.h"

namespace elidefs::fuse {

// The positive errno for a reply that reports `error` (0: success, stays 0). The kernel rejects a reply whose error is
// above 511 and leaves its caller waiting, and takes ENOSYS as "never ask for this operation again, it succeeds": both
// are replaced, so are values that no file system call documents.
int ReplyErrno(int error);
int ReplyErrno(const absl::Status& status);

}  // namespace elidefs::fuse
