// Second stage of a write: read what stands around it in its first and last block, then write.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/data/data_path.h"
#include "core/data/write_operation.h"

namespace elidefs::core {
namespace {

void PrepareBio(WriteOperation& operation, DataBio& data_bio, Operation kind, uint64_t offset_bytes, uint8_t* bytes,
                size_t length_bytes, void (*end_io)(blockio::Bio*)) {
  data_bio.segment = {bytes, length_bytes};
  data_bio.bio.operation = kind;
  data_bio.bio.offset_bytes = offset_bytes;
  data_bio.bio.length_bytes = length_bytes;
  data_bio.bio.segments = &data_bio.segment;
  data_bio.bio.segment_count = 1;
  data_bio.bio.context = &operation;
  data_bio.bio.end_io = end_io;
}

}  // namespace

void DataPath::StartDevice(const std::shared_ptr<WriteOperation>& operation) {
  operation->self = operation;
  if (operation->read_head || operation->read_tail) {
    ReadAround(operation);
  } else {
    SubmitWrites(operation);
  }
}

namespace {

// Puts the old content around the write into its image. What lies behind the old end of file is not content: zero.
void MergeAround(WriteOperation& operation, const uint8_t* old_blocks, uint32_t block_bytes) {
  const uint64_t image_start = static_cast<uint64_t>(operation.first_block) * block_bytes;
  const uint64_t image_end = image_start + static_cast<uint64_t>(operation.block_count) * block_bytes;
  const auto merge = [&](uint64_t begin, uint64_t end, const uint8_t* old_block, uint64_t old_block_start) {
    const uint64_t content_end = std::min(end, std::max(begin, operation.size_before_bytes));
    if (content_end > begin) {
      std::memcpy(operation.image.get() + (begin - image_start), old_block + (begin - old_block_start),
                  content_end - begin);
    }
  };
  const uint64_t tail_block_start = image_end - block_bytes;
  if (operation.read_head) merge(image_start, operation.offset_bytes, old_blocks, image_start);
  const bool one_block = operation.block_count == 1;
  if (operation.read_tail || (operation.read_head && one_block)) {
    const uint8_t* old_tail = operation.read_head && !one_block ? old_blocks + block_bytes : old_blocks;
    merge(operation.end_bytes(), image_end, old_tail, tail_block_start);
  }
}

}  // namespace

void DataPath::ReadAround(const std::shared_ptr<WriteOperation>& operation) {
  struct Around {
    BufferPool::Bytes blocks;
    std::shared_ptr<WriteOperation> operation;
    DataBio bios[2];
    std::atomic<uint32_t> left{0};
    std::atomic<int> error{0};
  };
  const uint32_t block_bytes = context_->geometry.block_bytes;
  auto* around = new Around;
  around->operation = operation;
  around->blocks = buffers_.Allocate(2 * static_cast<size_t>(block_bytes));
  if (around->blocks == nullptr) {
    delete around;
    operation->error.store(ENOMEM, std::memory_order_relaxed);
    operation->needs_finish = true;
    DeviceDone(operation);
    return;
  }
  uint32_t count = 0;
  const auto end_io = [](blockio::Bio* bio) {
    auto* self = static_cast<Around*>(bio->context);
    if (bio->error != 0) self->error.store(bio->error, std::memory_order_relaxed);
    if (self->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    DataPath* path = self->operation->path;
    // Submitting may have to wait (freeze): not on a completion thread.
    path->context_->workers->Schedule([path, self] {
      const std::unique_ptr<Around> owned(self);
      if (const int error = self->error.load(std::memory_order_relaxed); error != 0) {
        self->operation->error.store(error, std::memory_order_relaxed);
        self->operation->needs_finish = true;  // reserved blocks, if any, are given back by a worker
        path->DeviceDone(self->operation);
        return;
      }
      MergeAround(*self->operation, self->blocks.get(), path->context_->geometry.block_bytes);
      path->SubmitWrites(self->operation);
    });
  };
  const auto add = [&](BlockNumber physical) {
    PrepareBio(*operation, around->bios[count], Operation::kRead, physical * block_bytes,
               around->blocks.get() + static_cast<size_t>(count) * block_bytes, block_bytes, end_io);
    around->bios[count].bio.context = around;
    ++count;
  };
  if (operation->read_head) add(operation->segments.front().physical);
  if (operation->read_tail) add(operation->segments.back().physical + operation->segments.back().count - 1);
  around->left.store(count, std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) context_->queue->Submit(&around->bios[i].bio);
}

void DataPath::SubmitWrites(const std::shared_ptr<WriteOperation>& operation) {
  const uint32_t block_shift = context_->geometry.block_shift;
  operation->bios = std::vector<DataBio>(operation->segments.size());
  operation->bios_left.store(static_cast<uint32_t>(operation->bios.size()), std::memory_order_relaxed);
  for (size_t i = 0; i < operation->segments.size(); ++i) {
    const WriteSegment& segment = operation->segments[i];
    const size_t image_offset = static_cast<size_t>(segment.logical - operation->first_block) << block_shift;
    PrepareBio(*operation, operation->bios[i], Operation::kWrite, segment.physical << block_shift,
               operation->image.get() + image_offset, static_cast<size_t>(segment.count) << block_shift,
               [](blockio::Bio* bio) {
                 auto* self = static_cast<WriteOperation*>(bio->context);
                 if (bio->error != 0) {
                   self->error.store(bio->error, std::memory_order_relaxed);
                 } else {
                   // E2: recorded on the inode before anybody can be told that the write is complete.
                   if (!self->path->context_->planted.told_before_need) self->inode->RecordNeed(bio->need);
                   blockio::RaiseTo(self->need, bio->need);
                 }
                 if (self->bios_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
                 self->path->DeviceDone(std::shared_ptr<WriteOperation>(self->self));
               });
  }
  // The caller's reference keeps the list alive: the last completion may come while Submits are still to be made.
  for (DataBio& data_bio : operation->bios) context_->queue->Submit(&data_bio.bio);
}

void DataPath::DeviceDone(const std::shared_ptr<WriteOperation>& operation) {
  blockio::RaiseTo(newest_need_, operation->need.load(std::memory_order_acquire));
  operation->self.reset();
  if (operation->needs_finish) {
    ScheduleFinish(operation);
  } else {
    End(operation, operation->error.load(std::memory_order_relaxed));
  }
  if (context_->planted.told_before_need) operation->inode->RecordNeed(operation->need.load(std::memory_order_acquire));
}

}  // namespace elidefs::core
