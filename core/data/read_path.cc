// Reads of regular files, and the zeroing of a block's tail.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "core/data/data_path.h"
#include "core/data/write_operation.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

constexpr size_t kMaxReadBytes = 64U << 20U;

// The replayed form of block `start`, with *count = 1; or null, with *count cut to what the device holds in its newest
// form. File data is in the log of a volume that somebody else mounted with data=journal.
const BufferRef* Replayed(const VolumeContext& context, BlockNumber start, uint32_t* count) {
  if (context.replayed.empty()) return nullptr;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto found = context.replayed.find(start + i);
    if (found == context.replayed.end()) continue;
    *count = i == 0 ? 1 : i;
    return i == 0 ? &found->second : nullptr;
  }
  return nullptr;
}

}  // namespace

struct DataPath::ReadOperation {
  InodeRef inode;
  uint64_t offset_bytes = 0;
  size_t length_bytes = 0;
  ReadCallback callback;
  DataPath* path = nullptr;
  std::shared_ptr<ReadOperation> self;
  BufferPool::Bytes image;
  LogicalBlock first_block = 0;
  uint32_t block_count = 0;
  std::vector<DataBio> bios;
  std::atomic<uint32_t> bios_left{0};
  std::atomic<int> error{0};
};

void DataPath::Read(InodeRef inode, uint64_t offset_bytes, size_t length_bytes, ReadCallback callback) {
  auto operation = std::make_shared<ReadOperation>();
  operation->inode = std::move(inode);
  operation->offset_bytes = offset_bytes;
  operation->length_bytes = std::min(length_bytes, kMaxReadBytes);
  operation->callback = std::move(callback);
  operation->path = this;
  if (context_->queue->InCompletion()) {
    context_->workers->Schedule([this, operation] { StartRead(operation, false); });
  } else {
    StartRead(operation, false);
  }
}

bool DataPath::StartRead(const std::shared_ptr<ReadOperation>& operation, bool queued) {
  const InodeRef inode = operation->inode;
  absl::Status status;
  bool empty = false;
  {
    MutexLock lock(inode->mutex);
    if (operation->offset_bytes >= inode->size_bytes || operation->length_bytes == 0) {
      empty = true;
    } else {
      operation->length_bytes =
          std::min<uint64_t>(operation->length_bytes, inode->size_bytes - operation->offset_bytes);
      const uint32_t shift = context_->geometry.block_shift;
      const uint64_t last = (operation->offset_bytes + operation->length_bytes - 1) >> shift;
      operation->first_block = static_cast<LogicalBlock>(operation->offset_bytes >> shift);
      operation->block_count = static_cast<uint32_t>(last - operation->first_block + 1);
      if (DeferIfBlocked(inode, operation->first_block, static_cast<LogicalBlock>(last), queued,
                         [this, operation] { return StartRead(operation, true); })) {
        return false;
      }
      status = MapRead(*inode, *operation);
      if (status.ok()) {
        const timespec now = CoarseTimeOfDay();
        dirty_times_->TouchAccessTime(inode, {now.tv_sec, static_cast<uint32_t>(now.tv_nsec)});
        MutexLock io_lock(inode->io.mutex);
        ++inode->io.reads_in_flight;
      }
    }
  }
  if (empty || !status.ok()) {
    if (StatusToErrno(status) == EUCLEAN) status = context_->on_corruption(std::move(status));
    operation->callback(StatusToErrno(status), {});
    return true;
  }
  operation->self = operation;
  if (operation->bios.empty()) {
    ReadDone(operation);
    return true;
  }
  for (DataBio& data_bio : operation->bios) context_->queue->Submit(&data_bio.bio);
  return true;
}

absl::Status DataPath::MapRead(Inode& inode, ReadOperation& operation) {
  const uint32_t shift = context_->geometry.block_shift;
  operation.image = buffers_.Allocate(static_cast<size_t>(operation.block_count) << shift);
  if (operation.image == nullptr) return ErrnoError(ENOMEM, "no memory for a read");
  for (uint32_t done = 0; done < operation.block_count;) {
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping, LookupMapping(context_, inode, operation.first_block + done));
    uint32_t count = std::min(operation.block_count - done, mapping.length);
    uint8_t* bytes = operation.image.get() + (static_cast<size_t>(done) << shift);
    if (mapping.is_hole() || mapping.unwritten) {
      std::memset(bytes, 0, static_cast<size_t>(count) << shift);
    } else if (const BufferRef* block = Replayed(*context_, mapping.physical, &count); block != nullptr) {
      std::memcpy(bytes, (*block)->data(), (*block)->size_bytes());
    } else {
      const size_t length_bytes = static_cast<size_t>(count) << shift;
      DataBio data_bio;
      data_bio.segment = {bytes, length_bytes};
      data_bio.bio.operation = Operation::kRead;
      data_bio.bio.offset_bytes = mapping.physical << shift;
      data_bio.bio.length_bytes = length_bytes;
      operation.bios.push_back(data_bio);
    }
    done += count;
  }
  for (DataBio& data_bio : operation.bios) {
    data_bio.bio.segments = &data_bio.segment;
    data_bio.bio.segment_count = 1;
    data_bio.bio.context = &operation;
    data_bio.bio.end_io = [](blockio::Bio* bio) {
      auto* self = static_cast<ReadOperation*>(bio->context);
      if (bio->error != 0) self->error.store(bio->error, std::memory_order_relaxed);
      if (self->bios_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      self->path->ReadDone(std::shared_ptr<ReadOperation>(self->self));
    };
  }
  operation.bios_left.store(static_cast<uint32_t>(operation.bios.size()), std::memory_order_relaxed);
  return absl::OkStatus();
}

void DataPath::ReadDone(const std::shared_ptr<ReadOperation>& operation) {
  operation->self.reset();
  const int error = operation->error.load(std::memory_order_relaxed);
  const size_t head = operation->offset_bytes & (context_->geometry.block_bytes - 1);
  absl::Span<const uint8_t> data;
  if (error == 0) data = {operation->image.get() + head, operation->length_bytes};
  operation->callback(error, data);
  {
    MutexLock lock(operation->inode->io.mutex);
    if (--operation->inode->io.reads_in_flight == 0) operation->inode->io.idle.NotifyAll();
  }
}

absl::Status DataPath::ZeroTail(Inode& inode, uint64_t size_bytes) {
  const Geometry& geometry = context_->geometry;
  const size_t keep = size_bytes & (geometry.block_bytes - 1);
  if (keep == 0) return absl::OkStatus();
  ELIDEFS_ASSIGN_OR_RETURN(
      const Mapping mapping,
      LookupMapping(context_, inode, static_cast<LogicalBlock>(size_bytes >> geometry.block_shift)));
  if (mapping.is_hole() || mapping.unwritten) return absl::OkStatus();
  BufferPool::Bytes block = buffers_.Allocate(geometry.block_bytes);
  if (block == nullptr) return ErrnoError(ENOMEM, "no memory to zero the last block of a file");
  const uint64_t offset = mapping.physical << geometry.block_shift;
  if (const int error = context_->queue->Read(offset, block.get(), geometry.block_bytes); error != 0) {
    return ErrnoError(error, "reading the last block of a file failed");
  }
  const uint8_t* tail = block.get() + keep;
  if (std::all_of(tail, tail + (geometry.block_bytes - keep), [](uint8_t byte) { return byte == 0; })) {
    return absl::OkStatus();
  }
  std::memset(block.get() + keep, 0, geometry.block_bytes - keep);
  blockio::Ticket need = blockio::kNoNeed;
  if (const int error = context_->queue->Write(offset, block.get(), geometry.block_bytes, &need); error != 0) {
    return ErrnoError(error, "zeroing the last block of a file failed");
  }
  inode.RecordNeed(need);
  blockio::RaiseTo(newest_need_, need);
  return absl::OkStatus();
}

}  // namespace elidefs::core
