#include "fuse/errno_table.h"

#include <cerrno>

#include "base/error.h"

namespace elidefs::fuse {
namespace {

struct Replacement {
  int error;
  int reply;
};

constexpr int kLargestReplyErrno = 511;  // fuse_dev_do_write in the kernel refuses -512 and below

constexpr Replacement kReplacements[] = {
    {ENOSYS, EOPNOTSUPP},  // ENOSYS to FSYNC, FSYNCDIR or OPEN would turn every later call into a silent success
    {EREMOTEIO, EIO},      // block layer errors without a meaning for a file
    {EILSEQ, EIO},
    {ENODATA, EIO},
    {ENOLINK, EIO},
    {EBADE, EIO},
    {ECANCELED, EIO},
    {ENODEV, EIO},
    {ENXIO, EIO},
    {ETIME, EIO},
    {ENOTCONN, EIO},     // means "the daemon is dead" to everybody
                         // who looks at a FUSE mount
    {EBADMSG, EUCLEAN},  // a checksum that does not fit: reported as every other damage of the volume
};

}  // namespace

int ReplyErrno(int error) {
  if (error == 0) return 0;
  if (error < 0 || error > kLargestReplyErrno) return EIO;
  for (const Replacement& replacement : kReplacements) {
    if (replacement.error == error) return replacement.reply;
  }
  return error;
}

int ReplyErrno(const absl::Status& status) {
  if (status.ok()) return 0;
  const int error = StatusToErrno(status);
  return error == 0 ? EIO : ReplyErrno(error);
}

}  // namespace elidefs::fuse
