// First stage of a write: copy, map, reserve, admit.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "core/alloc/block_allocator.h"
#include "core/data/data_path.h"
#include "core/data/write_operation.h"
#include "core/extent/extent_tree.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kMaxWriteBytes = 64U << 20U;
// How often a write that found no space waits for freed blocks to become durable.
constexpr uint32_t kMaxSpaceRetries = 8;

}  // namespace

void DataPath::Write(InodeRef inode, uint64_t offset_bytes, absl::Span<const uint8_t> data, const WriteOptions& options,
                     WriteCallback callback) {
  if (data.empty()) return callback(0, 0);
  if (data.size() > kMaxWriteBytes) data = data.subspan(0, kMaxWriteBytes);
  auto operation = std::make_shared<WriteOperation>();
  operation->path = this;
  operation->inode = std::move(inode);
  operation->offset_bytes = offset_bytes;
  operation->length_bytes = data.size();
  operation->options = options;
  operation->callback = std::move(callback);
  if (options.append) {
    operation->raw.assign(data.begin(), data.end());
  } else {
    BuildImage(*operation, data);
  }
  // Acceptance may wait for metadata: never on a thread that reaps the device (a callback that issues the next write).
  if (context_->queue->InCompletion()) {
    context_->workers->Schedule([this, operation] { Accept(operation, false); });
  } else {
    Accept(operation, false);
  }
}

void DataPath::BuildImage(WriteOperation& operation, absl::Span<const uint8_t> data) {
  const Geometry& geometry = context_->geometry;
  const uint64_t first = operation.offset_bytes >> geometry.block_shift;
  const uint64_t last = (operation.end_bytes() - 1) >> geometry.block_shift;
  operation.block_count = static_cast<uint32_t>(last - first + 1);
  // A number that does not fit is refused by MapWrite before anything uses it.
  operation.first_block = static_cast<LogicalBlock>(std::min<uint64_t>(first, UINT32_MAX));
  const size_t image_bytes = static_cast<size_t>(operation.block_count) << geometry.block_shift;
  operation.image = buffers_.Allocate(image_bytes);
  if (operation.image == nullptr) return;
  const size_t head = operation.offset_bytes & (geometry.block_bytes - 1);
  std::memset(operation.image.get(), 0, head);
  std::memcpy(operation.image.get() + head, data.data(), data.size());
  std::memset(operation.image.get() + head + data.size(), 0, image_bytes - head - data.size());
}

bool DataPath::Accept(const std::shared_ptr<WriteOperation>& operation, bool queued) {
  const InodeRef inode = operation->inode;
  absl::Status status;
  bool acknowledge = false;
  {
    MutexLock lock(inode->mutex);
    if (operation->options.append) {
      operation->offset_bytes = inode->size_bytes;
      BuildImage(*operation, operation->raw);
    }
    if (operation->image == nullptr) {
      status = ErrnoError(ENOMEM, "no memory for a write");
    } else {
      if (DeferIfBlocked(inode, operation->first_block, operation->last_block(), queued,
                         [this, operation] { return Accept(operation, true); })) {
        return false;
      }
      status = MapWrite(*inode, *operation);
    }
    if (status.ok()) {
      Admit(*inode, operation);
      if (!operation->needs_finish && !operation->options.keep_times) dirty_times_->Add(inode);
      const uint64_t outstanding = outstanding_bytes_.fetch_add(operation->length_bytes, std::memory_order_relaxed);
      acknowledge = !operation->options.late && outstanding < options_.write_behind_bytes;
      operation->acknowledged = acknowledge;
    }
  }
  if (!status.ok()) {
    UndoMapping(*operation);
    if (StatusToErrno(status) == ENOSPC && operation->retries < kMaxSpaceRetries &&
        (operation->retries == 0 || MoreSpaceIsComing())) {
      RetryWhenSpaceIsFreed(operation);
    } else {
      if (StatusToErrno(status) == EUCLEAN) status = context_->on_corruption(std::move(status));
      std::exchange(operation->callback, nullptr)(StatusToErrno(status), 0);
    }
    return true;
  }
  operation->raw = {};
  WriteCallback callback;
  if (acknowledge) callback = std::exchange(operation->callback, nullptr);
  const size_t length_bytes = operation->length_bytes;
  StartDevice(operation);
  // D7: the device write has started; the caller gets its answer now, a sync waits for the operation's end.
  if (callback) callback(0, length_bytes);
  return true;
}

absl::Status DataPath::MapWrite(Inode& inode, WriteOperation& operation) {
  const Geometry& geometry = context_->geometry;
  if (!context_->writable()) return ErrnoError(EROFS, "the volume is read-only");
  if (!inode.HasExtents()) {
    return ErrnoError(EOPNOTSUPP,
                      "writes to block-mapped (ext3) files are not supported; convert the file with the kernel");
  }
  if ((inode.flags & kInodeImmutable) != 0) return ErrnoError(EPERM, "the file is immutable");
  // The last logical block number is kept free: it is the end marker of ranges.
  if (((operation.end_bytes() - 1) >> geometry.block_shift) >= UINT32_MAX) {
    return ErrnoError(EFBIG, "beyond the largest file size of the format");
  }
  if (operation.end_bytes() > geometry.MaxFileSizeByFeatures()) {
    return ErrnoError(EFBIG, "the volume lacks the large_file feature; add it with tune2fs");
  }
  if (operation.offset_bytes > inode.size_bytes) ELIDEFS_RETURN_IF_ERROR(CleanTail(inode, operation.first_block));
  ExtentTree tree(context_, &inode);
  LogicalBlock logical = operation.first_block;
  uint32_t left = operation.block_count;
  while (left > 0) {
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping, tree.Lookup(logical));
    const uint32_t count = std::min(left, mapping.length);
    if (mapping.is_hole()) {
      ELIDEFS_RETURN_IF_ERROR(MapHole(inode, operation, logical, count));
    } else {
      const auto kind = mapping.unwritten ? WriteSegment::Kind::kUnwritten : WriteSegment::Kind::kOverwrite;
      operation.segments.push_back({kind, logical, mapping.physical, count});
    }
    logical += count;
    left -= count;
  }
  // Room for tree nodes is promised now, so that insertion after the data completed cannot run out of space.
  uint64_t changes = 0;
  for (const WriteSegment& segment : operation.segments) {
    if (segment.kind != WriteSegment::Kind::kOverwrite) ++changes;
    if (segment.kind == WriteSegment::Kind::kFresh) operation.fresh_blocks += segment.count;
  }
  const uint64_t promise = changes * tree.InsertPromiseBlocks();
  if (promise > 0 && !context_->blocks->Promise(promise, operation.options.privileged).ok()) {
    ReleaseAllWindows();
    ELIDEFS_RETURN_IF_ERROR(context_->blocks->Promise(promise, operation.options.privileged));
  }
  operation.promised_blocks = promise;
  operation.needs_finish = changes > 0 || operation.end_bytes() > inode.disk_size_bytes;
  return absl::OkStatus();
}

absl::Status DataPath::MapHole(Inode& inode, WriteOperation& operation, LogicalBlock logical, uint32_t count) {
  while (count > 0) {
    absl::StatusOr<BlockRange> range = TakeBlocks(inode, logical, count, operation.options.privileged);
    if (!range.ok() && StatusToErrno(range.status()) == ENOSPC) {
      ReleaseAllWindows();
      range = TakeBlocks(inode, logical, count, operation.options.privileged);
    }
    if (!range.ok()) return range.status();
    WriteSegment* last = operation.segments.empty() ? nullptr : &operation.segments.back();
    if (last != nullptr && last->kind == WriteSegment::Kind::kFresh && last->physical + last->count == range->start &&
        last->count + range->count <= kExtentMaxInitBlocks) {
      last->count += range->count;
    } else {
      operation.segments.push_back({WriteSegment::Kind::kFresh, logical, range->start, range->count});
    }
    logical += range->count;
    count -= range->count;
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockRange> DataPath::TakeBlocks(Inode& inode, LogicalBlock logical, uint32_t count, bool privileged) {
  Reservation::Plan plan;
  {
    MutexLock lock(inode.io.mutex);
    const BlockRange reserved = inode.io.reservation.Take(logical, count);
    if (reserved.count > 0) {
      inode.io.reservation.Advance(logical + reserved.count, reserved.start + reserved.count);
      return reserved;
    }
    plan = inode.io.reservation.MakePlan(logical, count);
    if (inode.io.reservation.full()) plan = {logical, std::min(count, plan.count), plan.goal};
  }
  BlockNumber goal = plan.goal;
  if (goal == 0 && logical > 0) {
    ExtentTree tree(context_, &inode);
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping before, tree.Lookup(logical - 1));
    if (!before.is_hole()) goal = before.physical + 1;
  }
  if (goal == 0) goal = context_->blocks->GoalForInode(inode.number);
  absl::StatusOr<BlockRange> found =
      context_->blocks->Reserve(goal, std::min(plan.count, kExtentMaxInitBlocks), privileged);
  if (!found.ok()) return found.status();
  if (found->count <= logical - plan.start) {
    // The run found ends before the block that is needed now.
    context_->blocks->Unreserve(*found);
    found = context_->blocks->Reserve(goal, count, privileged);
    if (!found.ok()) return found.status();
    plan.start = logical;
  }
  bool first_piece = false;
  BlockRange taken;
  {
    MutexLock lock(inode.io.mutex);
    first_piece = inode.io.reservation.empty();
    inode.io.reservation.Add(plan.start, *found);
    taken = inode.io.reservation.Take(logical, count);
    inode.io.reservation.Advance(logical + taken.count, taken.start + taken.count);
  }
  if (first_piece) {
    MutexLock lock(volume_mutex_);
    constexpr size_t kPruneAt = 1024;
    if (windows_.size() >= kPruneAt) std::erase_if(windows_, [](const auto& weak) { return weak.expired(); });
    windows_.push_back(inode.weak_from_this());
  }
  return taken;
}

void DataPath::UndoMapping(WriteOperation& operation) {
  for (const WriteSegment& segment : operation.segments) {
    if (segment.kind == WriteSegment::Kind::kFresh) context_->blocks->Unreserve({segment.physical, segment.count});
  }
  operation.segments.clear();
  if (operation.promised_blocks > 0) context_->blocks->Unpromise(operation.promised_blocks);
  operation.promised_blocks = 0;
}

// Blocks freed by the running transaction become usable with its commit: a full volume is worth one before ENOSPC.
// While a deletion has freed nothing yet, its end is waited for. Writes under way hold promises for tree nodes that
// hardly any of them will need: before ENOSPC they have to end.
void DataPath::RetryWhenSpaceIsFreed(const std::shared_ptr<WriteOperation>& operation) {
  ++operation->retries;
  operation->fresh_blocks = 0;
  {
    MutexLock lock(volume_mutex_);
    waiting_for_space_.push_back(operation);
    if (!deletions_.empty() && context_->blocks->awaiting_durability_blocks() == 0) return;
  }
  AfterVolumeWrites(UINT32_MAX, [this] { context_->workers->Schedule([this] { CommitToFreeSpace(); }); });
}

// Freed blocks come back through SpaceFreed when the transaction is durable; an abort wakes the waiters as well.
void DataPath::CommitToFreeSpace() {
  if (context_->blocks->awaiting_durability_blocks() > 0) {
    (void)context_->journal->CommitBlocking(context_->journal->Newest(), nullptr);
  }
  SpaceFreed();
}

bool DataPath::MoreSpaceIsComing() {
  if (context_->blocks->awaiting_durability_blocks() > 0) return true;
  MutexLock lock(volume_mutex_);
  return !deletions_.empty() || !outstanding_.empty();
}

bool DataPath::ReclaimSpace() {
  bool waited = ReleaseAllWindows();
  {
    MutexLock lock(volume_mutex_);
    const uint64_t first_later_one = next_deletion_;
    while (!deletions_.empty() && *deletions_.begin() < first_later_one) {
      waited = true;
      volume_changed_.Wait(volume_mutex_);
    }
  }
  if (context_->blocks->promised_blocks() > 0) {
    waited = true;
    Notification ended;
    AfterVolumeWrites(UINT32_MAX, [&ended] { ended.Notify(); });
    ended.Wait();
  }
  if (context_->blocks->awaiting_durability_blocks() == 0) return waited;
  CommitToFreeSpace();
  return true;
}

DataPath::Deletion::Deletion(DataPath* data_path) : data_path_(data_path) {
  MutexLock lock(data_path_->volume_mutex_);
  number_ = data_path_->next_deletion_++;
  data_path_->deletions_.insert(number_);
}

DataPath::Deletion::~Deletion() {
  bool wanted = false;
  {
    MutexLock lock(data_path_->volume_mutex_);
    data_path_->deletions_.erase(number_);
    wanted = !data_path_->waiting_for_space_.empty();
    data_path_->volume_changed_.NotifyAll();
  }
  if (wanted) data_path_->context_->workers->Schedule([path = data_path_] { path->CommitToFreeSpace(); });
}

void DataPath::SpaceFreed() {
  std::vector<std::shared_ptr<WriteOperation>> waiting;
  {
    MutexLock lock(volume_mutex_);
    waiting.swap(waiting_for_space_);
  }
  for (const auto& operation : waiting) {
    context_->workers->Schedule([this, operation] { Accept(operation, false); });
  }
}

// A crash may have left bytes of an uncommitted append behind the end of file, in a block that is mapped. They must not
// show when the file grows past them. Once per inode object: this mount keeps its tails zero.
absl::Status DataPath::CleanTail(Inode& inode, LogicalBlock first_block_written) {
  const uint64_t size_bytes = inode.size_bytes;
  const uint64_t tail_block = size_bytes >> context_->geometry.block_shift;
  const bool partial = (size_bytes & (context_->geometry.block_bytes - 1)) != 0;
  if (inode.tail_is_zero || !partial || tail_block >= first_block_written) return absl::OkStatus();
  {
    // A write in flight there carries its own zeroes.
    MutexLock lock(inode.io.mutex);
    if (!inode.io.writes.empty()) return absl::OkStatus();
  }
  ELIDEFS_RETURN_IF_ERROR(ZeroTail(inode, size_bytes));
  inode.tail_is_zero = true;
  return absl::OkStatus();
}

void DataPath::Admit(Inode& inode, const std::shared_ptr<WriteOperation>& operation) {
  const uint32_t block_mask = context_->geometry.block_bytes - 1;
  operation->size_before_bytes = inode.size_bytes;
  inode.pending_blocks += operation->fresh_blocks;
  const bool partial_head = (operation->offset_bytes & block_mask) != 0;
  // A last block that reaches the end of the file has nothing behind it worth keeping.
  const bool partial_tail = (operation->end_bytes() & block_mask) != 0 && operation->end_bytes() < inode.size_bytes;
  const bool head_exists = operation->segments.front().kind == WriteSegment::Kind::kOverwrite;
  const bool tail_exists = operation->segments.back().kind == WriteSegment::Kind::kOverwrite;
  operation->read_head = partial_head && head_exists;
  operation->read_tail = partial_tail && tail_exists && !(operation->read_head && operation->block_count == 1);
  inode.size_bytes = std::max(inode.size_bytes, operation->end_bytes());
  if (!operation->options.keep_times) {
    const timespec now = CoarseTimeOfDay();
    inode.mtime = inode.ctime = {now.tv_sec, static_cast<uint32_t>(now.tv_nsec)};
    ++inode.version;
  }
  {
    MutexLock lock(inode.io.mutex);
    operation->sequence = inode.io.next_sequence++;
    inode.io.sequences.insert(operation->sequence);
    inode.io.writes.emplace(operation->first_block, operation);
  }
  MutexLock lock(volume_mutex_);
  operation->volume_sequence = next_volume_sequence_++;
  outstanding_.insert(operation->volume_sequence);
}

}  // namespace elidefs::core
