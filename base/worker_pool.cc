#include "base/worker_pool.h"

#include <algorithm>
#include <utility>

namespace elidefs {

WorkerPool::WorkerPool(size_t threads, const std::string& name) {
  for (size_t i = 0; i < std::max<size_t>(threads, 1); ++i) threads_.emplace_back(name, [this] { Run(); });
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_ready_.NotifyAll();
  for (Thread& thread : threads_) thread.Join();
}

void WorkerPool::Schedule(absl::AnyInvocable<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  work_ready_.NotifyOne();
}

void WorkerPool::Drain() {
  MutexLock lock(mutex_);
  while (!tasks_.empty() || running_ > 0) idle_.Wait(mutex_);
}

void WorkerPool::Run() {
  mutex_.Lock();
  while (true) {
    while (tasks_.empty() && !stopping_) work_ready_.Wait(mutex_);
    if (tasks_.empty()) break;
    absl::AnyInvocable<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    mutex_.Unlock();
    task();
    task = nullptr;  // what the task captured is released before Drain can return
    mutex_.Lock();
    --running_;
    if (tasks_.empty() && running_ == 0) idle_.NotifyAll();
  }
  mutex_.Unlock();
}

}  // namespace elidefs
