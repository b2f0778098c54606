// The commands that talk to a running daemon: stat, flush, unmount. Each prints its result and returns an exit status.
#pragma once

#include <string>

namespace elidefs::fuse {

int RunStat(const std::string& mountpoint, bool json);
int RunFlush(const std::string& mountpoint);
// Returns 0 only when the daemon has closed the volume clean and has exited.
int RunUnmount(const std::string& mountpoint);

}  // namespace elidefs::fuse
