// What happens to the volume when something under it fails (DESIGN, "Errors").
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/ondisk/checksums.h"
#include "core/volume/volume_impl.h"

namespace elidefs::core {

void VolumeImpl::BecomeReadOnly(const absl::Status& reason) {
  {
    MutexLock lock(failure_mutex_);
    if (!read_only_reason_.empty()) return;
    read_only_reason_ = std::string(reason.message());
  }
  context_.logger.Error(
      absl::StrCat(device_->name(), ": the volume is read-only now: ", std::string(reason.message())));
  if (data_path_ != nullptr) data_path_->SpaceFreed();
  if (context_.workers != nullptr) context_.workers->Schedule([this] { MarkErrorOnDisk(); });
}

// Best effort. Starts from what the device holds, not from the buffer in memory, which may carry changes of a
// transaction that will never commit.
void VolumeImpl::MarkErrorOnDisk() {
  const Geometry& geometry = context_.geometry;
  BufferPool pool;
  const BufferPool::Bytes block = pool.Allocate(geometry.block_bytes);
  const uint64_t offset = geometry.SuperBlockNumber() << geometry.block_shift;
  if (block == nullptr || context_.queue->Read(offset, block.get(), geometry.block_bytes) != 0) return;
  auto* super = reinterpret_cast<SuperBlock*>(block.get() + kSuperBlockOffsetBytes % geometry.block_bytes);
  if (super->s_magic != kExt4Magic) return;
  const auto now = static_cast<uint32_t>(TimeOfDay().tv_sec);
  constexpr char kFunction[] = "elidefs";
  // The error code fields lie in the second sector; they stay, so that the update cannot be torn (SealSuperBlock).
  super->s_state = static_cast<uint16_t>(super->s_state | kStateErrors);
  if (super->s_error_count == 0) {
    super->s_first_error_time = now;
    std::memset(super->s_first_error_func, 0, sizeof(super->s_first_error_func));
    std::memcpy(super->s_first_error_func, kFunction, sizeof(kFunction));
  }
  super->s_last_error_time = now;
  std::memset(super->s_last_error_func, 0, sizeof(super->s_last_error_func));
  std::memcpy(super->s_last_error_func, kFunction, sizeof(kFunction));
  super->s_error_count = super->s_error_count + 1;
  SealSuperBlock(super);
  if (context_.queue->Write(offset, block.get(), geometry.block_bytes, nullptr) != 0) {
    context_.logger.Error("marking the superblock with the error failed as well");
  }
}

absl::Status VolumeImpl::HandleCorruption(absl::Status status) {
  context_.logger.Error(absl::StrCat(device_->name(), ": ", std::string(status.message())));
  switch (options_.errors) {
    case ErrorPolicy::kRemountReadOnly:
      if (context_.journal != nullptr) context_.journal->Abort(status);
      break;
    case ErrorPolicy::kContinue:
      // The superblock belongs to the journal while the volume is written: the mark goes in with the unmount.
      damage_seen_ = true;
      break;
    case ErrorPolicy::kPanic:
      // What errors=panic asks for: stop this instant and leave the rest to recovery.
      std::abort();
  }
  return status;
}

}  // namespace elidefs::core
