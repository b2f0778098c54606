#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace elidefs {
namespace {

TEST(WorkerPool, RunsEveryTaskAndDrains) {
  WorkerPool pool(3, "test-pool");
  std::atomic<int> ran{0};
  for (int i = 0; i < 1000; ++i) pool.Schedule([&ran] { ran.fetch_add(1); });
  pool.Drain();
  EXPECT_EQ(ran.load(), 1000);
}

TEST(WorkerPool, DrainCoversTasksScheduledByTasks) {
  WorkerPool pool(2, "test-pool");
  std::atomic<int> ran{0};
  pool.Schedule([&] {
    pool.Schedule([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      pool.Schedule([&] { ran.fetch_add(1); });
    });
  });
  pool.Drain();
  EXPECT_EQ(ran.load(), 1);
}

TEST(WorkerPool, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkerPool pool(0, "a-name-longer-than-fifteen-bytes");
    for (int i = 0; i < 100; ++i) pool.Schedule([&order, i] { order.push_back(i); });
  }  // the destructor runs what is queued
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkerPool, ReleasesWhatATaskCaptured) {
  WorkerPool pool(1, "test-pool");
  auto shared = std::make_shared<int>(1);
  pool.Schedule([shared] {});
  pool.Drain();
  EXPECT_EQ(shared.use_count(), 1);
}

}  // namespace
}  // namespace elidefs
