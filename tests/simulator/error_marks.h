// What a failure leaves on a volume so that the next mount is read-only until e2fsck has looked. Threads: none.
#pragma once

#include "blockio/device/sector_image.h"

namespace elidefs::simulator {

// Takes the marks from superblock and journal, as e2fsck does after it has found nothing wrong. False if there are
// none. The image is one that mke2fs made with blocks of 1 KiB or more and whose superblocks are sound.
bool ClearErrorMarks(blockio::SectorImage& image);

}  // namespace elidefs::simulator
