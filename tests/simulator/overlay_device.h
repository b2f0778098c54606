// OverlayDevice: a volume's device over a SectorImage. Completes inside Submit; nothing is ever lost. The image is the
// caller's: what the volume writes is there to be looked at, and to be rolled back.
#pragma once

#include <memory>

#include "blockio/device/sector_image.h"
#include "elidefs/block_device.h"

namespace elidefs::simulator {

// Borrows `image`; used by one thread at a time, or by the threads of one simulation.
std::unique_ptr<BlockDevice> MakeOverlayDevice(blockio::SectorImage* image);

}  // namespace elidefs::simulator
