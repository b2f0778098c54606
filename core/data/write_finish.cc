// Last stage of a write: its extents and size enter a transaction (D2: after the data completed), then it leaves the
// list.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/data/data_path.h"
#include "core/data/write_operation.h"
#include "core/extent/extent_tree.h"
#include "core/inode/inode_store.h"

namespace elidefs::core {

// Neighbouring segments of one kind, of one or several writes, that enter the tree at once.
struct DataPath::Run {
  WriteSegment segment;
  uint64_t end_bytes = 0;  // the file reaches at least this far once the run is in
  blockio::Ticket need = blockio::kNoNeed;
};

void DataPath::ScheduleFinish(const std::shared_ptr<WriteOperation>& operation) {
  const InodeRef inode = operation->inode;
  {
    MutexLock lock(inode->io.mutex);
    operation->ready = true;
    inode->io.ready.push_back(operation);
    if (inode->io.finish_scheduled) return;
    inode->io.finish_scheduled = true;
  }
  context_->workers->Schedule([this, inode] { FinishReady(inode); });
}

namespace {

// The ready writes in file order, without those that were accepted after a write which lies before them and is still at
// the device: entering what an ascending writer wrote in order keeps extents merged and tree leaves full. What is held
// back is taken when that write is ready, which it becomes whatever the device says.
std::vector<std::shared_ptr<WriteOperation>> TakeFinishable(InodeIo& io) ABSL_EXCLUSIVE_LOCKS_REQUIRED(io.mutex) {
  std::sort(io.ready.begin(), io.ready.end(),
            [](const auto& a, const auto& b) { return a->first_block < b->first_block; });
  std::vector<std::shared_ptr<WriteOperation>> taken;
  std::vector<std::shared_ptr<WriteOperation>> held;
  auto position = io.writes.begin();
  uint64_t oldest_at_device = UINT64_MAX;
  for (auto& operation : io.ready) {
    for (; position != io.writes.end() && position->first < operation->first_block; ++position) {
      const WriteOperation& before = *position->second;
      if (!before.ready && before.needs_finish) oldest_at_device = std::min(oldest_at_device, before.sequence);
    }
    (operation->sequence > oldest_at_device ? held : taken).push_back(std::move(operation));
  }
  io.ready = std::move(held);
  return taken;
}

}  // namespace

void DataPath::FinishReady(const InodeRef& inode) {
  while (true) {
    std::vector<std::shared_ptr<WriteOperation>> operations;
    {
      MutexLock lock(inode->io.mutex);
      operations = TakeFinishable(inode->io);
      if (operations.empty()) {
        inode->io.finish_scheduled = false;
        return;
      }
    }
    const uint32_t block_shift = context_->geometry.block_shift;
    std::vector<Run> runs;
    uint64_t promised = 0;
    for (const auto& operation : operations) {
      if (operation->error.load(std::memory_order_relaxed) != 0) {
        UndoMapping(*operation);
        continue;
      }
      promised += operation->promised_blocks;
      for (const WriteSegment& segment : operation->segments) {
        const uint64_t segment_end = (static_cast<uint64_t>(segment.logical) + segment.count) << block_shift;
        const Run run = {segment, std::min(segment_end, operation->end_bytes()),
                         operation->need.load(std::memory_order_acquire)};
        Run* last = runs.empty() ? nullptr : &runs.back();
        const uint32_t limit =
            segment.kind == WriteSegment::Kind::kFresh ? kExtentMaxInitBlocks : kExtentMaxUnwrittenBlocks;
        if (last != nullptr && last->segment.kind == segment.kind &&
            last->segment.logical + last->segment.count == segment.logical &&
            last->segment.physical + last->segment.count == segment.physical &&
            last->segment.count + segment.count <= limit) {
          last->segment.count += segment.count;
          last->end_bytes = std::max(last->end_bytes, run.end_bytes);
          last->need = std::max(last->need, run.need);
        } else {
          runs.push_back(run);
        }
      }
    }
    absl::Status status;
    {
      MutexLock lock(inode->mutex);
      for (const Run& run : runs) {
        if (status.ok()) status = FinishRun(*inode, run);
      }
      if (!status.ok()) {
        if (StatusToErrno(status) == EUCLEAN) status = context_->on_corruption(std::move(status));
        // Acknowledged data cannot be entered; its reserved blocks stay out of use.
        context_->journal->Abort(status);
      }
      for (const auto& operation : operations) inode->pending_blocks -= operation->fresh_blocks;
    }
    if (promised > 0) context_->blocks->Unpromise(promised);
    for (const auto& operation : operations) {
      int error = operation->error.load(std::memory_order_relaxed);
      if (error == 0 && !status.ok()) error = EIO;
      End(operation, error);
    }
  }
}

absl::Status DataPath::FinishRun(Inode& inode, const Run& run) {
  const WriteSegment& segment = run.segment;
  if (segment.kind != WriteSegment::Kind::kUnwritten) return FinishPiece(inode, run);
  // Neighbouring unwritten runs may be several extents; one handle converts what lies in one of them.
  const uint32_t block_shift = context_->geometry.block_shift;
  for (uint32_t done = 0; done < segment.count;) {
    ExtentTree tree(context_, &inode);
    Run piece = run;
    piece.segment.logical += done;
    piece.segment.physical += done;
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping, tree.Lookup(piece.segment.logical));
    piece.segment.count = std::min(segment.count - done, mapping.length);
    const uint64_t piece_end = (static_cast<uint64_t>(piece.segment.logical) + piece.segment.count) << block_shift;
    piece.end_bytes = std::min(run.end_bytes, piece_end);
    ELIDEFS_RETURN_IF_ERROR(FinishPiece(inode, piece));
    done += piece.segment.count;
  }
  return absl::OkStatus();
}

absl::Status DataPath::FinishPiece(Inode& inode, const Run& run) {
  const WriteSegment& segment = run.segment;
  if (segment.kind == WriteSegment::Kind::kOverwrite && run.end_bytes <= inode.disk_size_bytes) return absl::OkStatus();
  const uint32_t groups = segment.count / context_->geometry.blocks_per_group + 2;
  uint32_t credits = 0;
  {
    ExtentTree tree(context_, &inode);
    if (segment.kind != WriteSegment::Kind::kOverwrite) tree.PrepareInsert(segment.logical);
    credits = 1 + 2 * groups + tree.InsertCredits();
  }
  ELIDEFS_ASSIGN_OR_RETURN(Handle handle, context_->journal->Start(credits));
  absl::Status status = EnterTransaction(handle, inode, run);
  // Bitmap and tree may disagree: aborted while the handle is open, so that this transaction cannot commit.
  if (!status.ok()) context_->journal->Abort(status);
  return status;
}

absl::Status DataPath::EnterTransaction(Handle& handle, Inode& inode, const Run& run) {
  const WriteSegment& segment = run.segment;
  ExtentTree tree(context_, &inode);
  if (segment.kind == WriteSegment::Kind::kFresh) {
    ELIDEFS_RETURN_IF_ERROR(context_->blocks->Commit(handle, {segment.physical, segment.count}));
    ELIDEFS_RETURN_IF_ERROR(
        tree.Insert(handle, segment.logical, segment.physical, segment.count, /*unwritten=*/false, /*promised=*/true));
  } else if (segment.kind == WriteSegment::Kind::kUnwritten) {
    ELIDEFS_RETURN_IF_ERROR(tree.ConvertToWritten(handle, segment.logical, segment.count, /*promised=*/true));
  }
  inode.disk_size_bytes = std::max(inode.disk_size_bytes, run.end_bytes);
  ELIDEFS_RETURN_IF_ERROR(context_->inode_store->Write(handle, inode));
  handle.OrderAfter(run.need);
  inode.JoinTransaction(handle.transaction(), /*datasync=*/true);
  dirty_times_->Remove(inode);
  return absl::OkStatus();
}

void DataPath::End(const std::shared_ptr<WriteOperation>& operation, int error) {
  const InodeRef inode = operation->inode;
  std::vector<absl::AnyInvocable<void()>> fired;
  {
    InodeIo& io = inode->io;
    MutexLock lock(io.mutex);
    // An error of a write that is still to be answered is its answer; any other waits for the next write or sync.
    if (error != 0 && operation->acknowledged) {
      ++io.error_sequence;
      deferred_errors_.fetch_add(1, std::memory_order_release);
      io.last_error = error;
    }
    io.writes.erase(operation->first_block);
    io.sequences.erase(operation->sequence);
    const uint64_t oldest = io.sequences.empty() ? io.next_sequence : *io.sequences.begin();
    std::erase_if(io.barriers, [&](InodeIo::Barrier& barrier) {
      if (barrier.sequence > oldest) return false;
      fired.push_back(std::move(barrier.fire));
      return true;
    });
    io.idle.NotifyAll();
  }
  if (operation->callback) {
    std::exchange(operation->callback, nullptr)(error, error == 0 ? operation->length_bytes : 0);
  }
  for (auto& fire : fired) fire();
  WakeInode(inode);
  EndOnVolume(*operation);
}

}  // namespace elidefs::core
