#include "base/mutex.h"

namespace elidefs {

void Mutex::Lock() {
  mutex_.lock();
}

void Mutex::Unlock() {
  mutex_.unlock();
}

bool Mutex::TryLock() {
  return mutex_.try_lock();
}

void CondVar::Wait(Mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  cond_.wait(lock);
  lock.release();
}

bool CondVar::WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  const bool notified = cond_.wait_for(lock, timeout) == std::cv_status::no_timeout;
  lock.release();
  return notified;
}

void CondVar::NotifyOne() {
  cond_.notify_one();
}

void CondVar::NotifyAll() {
  cond_.notify_all();
}

}  // namespace elidefs
