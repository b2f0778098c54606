// The parts of the data operations that can be tested alone.
#pragma once

#include <cstdint>

namespace elidefs::fuse {

// OpenFlag bits of the library for the flags of open(2). Appending and truncating never reach the volume: the kernel
// passes offsets and sends a SETATTR. With `writeback_cache` the kernel also reads through descriptors that were opened
// for writing only, to fill pages that are written in part.
uint32_t MakeOpenFlags(int flags, bool writeback_cache);

}  // namespace elidefs::fuse
