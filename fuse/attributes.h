// Conversions between FUSE's and the volume's attributes, and replies that carry entries.
#pragma once

#include "absl/status/statusor.h"
#include "elidefs/volume.h"
#include "fuse/daemon.h"
#include "fuse/fuse_api.h"

namespace elidefs::fuse {

// Only this daemon changes the volume and the kernel invalidates what its own calls change, so names, missing names and
// attributes stay valid for a day.
inline constexpr double kCacheSeconds = 86400;

// `valid` is libfuse's mask of FUSE_SET_ATTR_*. Bits that only explain others are dropped.
AttributeChange MakeAttributeChange(const struct stat& attributes, int valid);

fuse_entry_param MakeEntryParam(const Entry& entry);

// Answers with the entry and gives the lookup back if the kernel did not take it (the caller was interrupted).
void ReplyEntry(fuse_req_t request, const absl::StatusOr<Entry>& entry);
void ReplyStatus(fuse_req_t request, const absl::Status& status);

}  // namespace elidefs::fuse
