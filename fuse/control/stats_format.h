// The output of `elidefs stat`.
#pragma once

#include <string>

#include "elidefs/stats.h"

namespace elidefs::fuse {

// What is known about the mount besides the volume's counters.
struct MountDescription {
  std::string source;
  std::string mountpoint;
  int pid = 0;
  bool writeback_cache = false;
};

// Keys mirror the field names of elidefs/stats.h; they are stable, new ones may be added.
std::string FormatStatsJson(const VolumeStats& stats, const MountDescription& mount);
// For people.
std::string FormatStatsText(const VolumeStats& stats, const MountDescription& mount);

}  // namespace elidefs::fuse
