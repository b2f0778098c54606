// Barriers, the gate and the deferred queue; the stages of reads and writes are in the files beside this one.
#include "core/data/data_path.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "core/alloc/block_allocator.h"
#include "core/data/write_operation.h"

namespace elidefs::core {
namespace {

using Clock = SteadyClock;

}  // namespace

struct DataPath::VolumeBarrier {
  uint64_t sequence = 0;  // fires when every write with a smaller volume sequence has ended
  Clock::time_point deadline;
  absl::AnyInvocable<void()> fire;
};

DataPath::DataPath(VolumeContext* context, DirtyTimes* dirty_times, Options options)
    : context_(context), dirty_times_(dirty_times), options_(options) {
  timer_ = Thread("elidefs-timer", [this] { TimerLoop(); });
}

DataPath::~DataPath() {
  {
    MutexLock lock(volume_mutex_);
    stopping_ = true;
  }
  volume_changed_.NotifyAll();
  timer_.Join();
}

void DataPath::AfterAcceptedWrites(const InodeRef& inode, absl::AnyInvocable<void()> done) {
  {
    MutexLock lock(inode->io.mutex);
    if (!inode->io.writes.empty()) {
      inode->io.barriers.push_back({inode->io.next_sequence, std::move(done)});
      return;
    }
  }
  done();
}

void DataPath::AfterVolumeWrites(uint32_t timeout_ms, absl::AnyInvocable<void()> done) {
  {
    MutexLock lock(volume_mutex_);
    if (!outstanding_.empty() && timeout_ms > 0) {
      auto barrier = std::make_shared<VolumeBarrier>();
      barrier->sequence = next_volume_sequence_;
      barrier->deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
      barrier->fire = std::move(done);
      volume_barriers_.push_back(std::move(barrier));
      volume_changed_.NotifyAll();
      return;
    }
  }
  done();
}

void DataPath::EndOnVolume(const WriteOperation& operation) {
  outstanding_bytes_.fetch_sub(operation.length_bytes, std::memory_order_relaxed);
  std::vector<std::shared_ptr<VolumeBarrier>> fired;
  {
    MutexLock lock(volume_mutex_);
    ++ending_;
    outstanding_.erase(operation.volume_sequence);
    const uint64_t oldest = outstanding_.empty() ? next_volume_sequence_ : *outstanding_.begin();
    std::erase_if(volume_barriers_, [&](std::shared_ptr<VolumeBarrier>& barrier) {
      if (barrier->sequence > oldest) return false;
      fired.push_back(std::move(barrier));
      return true;
    });
  }
  for (const auto& barrier : fired) barrier->fire();
  // Last: whoever drains may take the data path apart.
  MutexLock lock(volume_mutex_);
  if (--ending_ == 0 && outstanding_.empty()) volume_changed_.NotifyAll();
}

void DataPath::TimerLoop() {
  volume_mutex_.Lock();
  while (!stopping_) {
    std::vector<std::shared_ptr<VolumeBarrier>> late;
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::chrono::seconds(60);
    std::erase_if(volume_barriers_, [&](std::shared_ptr<VolumeBarrier>& barrier) {
      if (barrier->deadline > now) {
        next = std::min(next, barrier->deadline);
        return false;
      }
      late.push_back(std::move(barrier));
      return true;
    });
    if (late.empty()) {
      if (volume_barriers_.empty()) {
        volume_changed_.Wait(volume_mutex_);
      } else {
        volume_changed_.WaitFor(volume_mutex_, next - now);
      }
      continue;
    }
    volume_mutex_.Unlock();
    for (const auto& barrier : late) barrier->fire();
    volume_mutex_.Lock();
  }
  volume_mutex_.Unlock();
}

void DataPath::Drain() {
  MutexLock lock(volume_mutex_);
  while (!outstanding_.empty() || ending_ > 0) volume_changed_.Wait(volume_mutex_);
}

DataPath::Exclusive::Exclusive(DataPath* data_path, InodeRef inode) : data_path_(data_path), inode_(std::move(inode)) {
  InodeIo& io = inode_->io;
  {
    MutexLock lock(io.mutex);
    ++io.exclusive;
  }
  // An acceptance that looked at the gate before it closed is over once its mutex was ours.
  { MutexLock lock(inode_->mutex); }
  MutexLock lock(io.mutex);
  while (!io.writes.empty() || io.reads_in_flight > 0) io.idle.Wait(io.mutex);
}

DataPath::Exclusive::~Exclusive() {
  {
    MutexLock lock(inode_->io.mutex);
    --inode_->io.exclusive;
  }
  data_path_->WakeInode(inode_);
}

bool DataPath::DeferIfBlocked(const InodeRef& inode, LogicalBlock first, LogicalBlock last, bool queued,
                              absl::AnyInvocable<bool()> task) {
  InodeIo& io = inode->io;
  MutexLock lock(io.mutex);
  bool blocked = io.exclusive > 0 || (!queued && !io.deferred.empty());
  if (!blocked) {
    auto behind = io.writes.upper_bound(last);
    blocked = behind != io.writes.begin() && std::prev(behind)->second->last_block() >= first;
  }
  // A task that comes from the queue is put back by RunDeferred, which still holds it.
  if (blocked && !queued) io.deferred.push_back(std::move(task));
  return blocked;
}

void DataPath::WakeInode(const InodeRef& inode) {
  {
    MutexLock lock(inode->io.mutex);
    if (inode->io.deferred.empty() && !inode->io.wake_scheduled) return;
    if (inode->io.wake_scheduled) {
      inode->io.wake_again = true;
      return;
    }
    inode->io.wake_scheduled = true;
  }
  context_->workers->Schedule([this, inode] { RunDeferred(inode); });
}

void DataPath::RunDeferred(const InodeRef& inode) {
  InodeIo& io = inode->io;
  while (true) {
    absl::AnyInvocable<bool()> task;
    {
      MutexLock lock(io.mutex);
      if (io.deferred.empty() || io.exclusive > 0) {
        io.wake_scheduled = false;
        io.wake_again = false;
        return;
      }
      task = std::move(io.deferred.front());
      io.deferred.pop_front();
    }
    if (task()) continue;
    MutexLock lock(io.mutex);
    io.deferred.push_front(std::move(task));
    if (!io.wake_again) {
      io.wake_scheduled = false;
      return;
    }
    io.wake_again = false;  // something ended while the task looked: look again
  }
}

void DataPath::ReleaseWindow(const InodeRef& inode) {
  std::vector<BlockRange> ranges;
  {
    MutexLock lock(inode->io.mutex);
    ranges = inode->io.reservation.Clear();
  }
  for (const BlockRange& range : ranges) context_->blocks->Unreserve(range);
}

bool DataPath::ReleaseAllWindows() {
  std::vector<std::weak_ptr<Inode>> windows;
  {
    MutexLock lock(volume_mutex_);
    windows.swap(windows_);
  }
  for (const std::weak_ptr<Inode>& weak : windows) {
    if (const InodeRef inode = weak.lock()) ReleaseWindow(inode);
  }
  return !windows.empty();
}

}  // namespace elidefs::core
