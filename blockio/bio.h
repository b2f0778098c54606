// Bio: one I/O as the users of the block layer (core, tests, embedders) describe it.
//
// Ownership: the submitter owns the Bio, its segments and its buffers, and keeps them until `end_io` ran. `end_io` may
// free the Bio or submit it again. Threads: `end_io` runs on a completion thread or inside Submit; it must not block
// and must not wait for other I/O.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "blockio/flush_ledger.h"
#include "blockio/ticket.h"
#include "elidefs/block_device.h"

namespace elidefs::blockio {

enum BioFlag : uint32_t {
  kBioPreflush = 1U << 0U,  // flush the cache before the data is written
  kBioFua = 1U << 1U,       // the data is durable at completion: native FUA, or a flush behind it
};

class HardwareQueue;

struct Bio {
  Operation operation = Operation::kRead;
  uint32_t flags = 0;  // BioFlag
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;        // equals the sum of the segments; 0 for kFlush
  const iovec* segments = nullptr;  // none for kFlush, kDiscard, kWriteZeroes
  uint32_t segment_count = 0;
  void (*end_io)(Bio* bio) = nullptr;
  void* context = nullptr;  // the submitter's

  // Results, set before end_io.
  int error = 0;  // 0 or a positive errno
  // For a successful kWrite, kDiscard, kWriteZeroes: the ticket of the first flush that covers it, read after this
  // bio's own completion (E2). kNoNeed after a native-FUA write (E6), and when kBioFua was satisfied by a flush behind
  // the data. A bio that was split carries the need of its last child.
  Ticket need = kNoNeed;

  // The block layer's, between Submit and end_io.
  Bio* next = nullptr;
  uint32_t remaining_children = 0;  // dispatched or about to be, not completed
  uint8_t steps = 0;                // what is left of the flush sequence (FlushStep)
  bool sequenced = false;           // counts for C2 while its data is executed
  uint32_t next_segment = 0;        // where the next child starts: segment, offset in it, offset in the bio
  uint64_t next_segment_offset = 0;
  uint64_t issued_bytes = 0;
  HardwareQueue* hardware_queue = nullptr;
  FlushWaiter retirement;  // of the flush that this bio's sequence waits for
};

}  // namespace elidefs::blockio
