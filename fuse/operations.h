// The FUSE operations. Each file fills in its part of libfuse's table; what stays empty is answered with ENOSYS, which
// tells the kernel to do without: access (default_permissions), extended attributes, lseek, locks, ioctl, bmap, poll.
#pragma once

#include "fuse/fuse_api.h"

namespace elidefs::fuse {

void AddAttributeOperations(fuse_lowlevel_ops* operations);  // getattr, setattr, statfs
void AddNamespaceOperations(fuse_lowlevel_ops* operations);  // lookup, forget, names, links
void AddDirectoryOperations(fuse_lowlevel_ops* operations);  // opendir, readdir, readdirplus, fsyncdir
void AddDataOperations(fuse_lowlevel_ops* operations);       // open, create, read, write, fsync

}  // namespace elidefs::fuse
