#include "blockio/device/null_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "blockio/request_queue.h"
#include "tests/unit/blockio/checker_device.h"
#include "tests/unit/blockio/test_bio.h"

namespace elidefs::blockio {
namespace {

struct Answered : DeviceRequest {
  std::vector<Answered*>* order = nullptr;
  std::atomic<int> answers{0};
  std::chrono::steady_clock::time_point at;

  explicit Answered(Operation kind, std::vector<Answered*>* list = nullptr) : order(list) {
    operation = kind;
    complete = [](DeviceRequest* request, int error) {
      auto* self = static_cast<Answered*>(request);
      EXPECT_EQ(error, 0);
      self->at = std::chrono::steady_clock::now();
      if (self->order != nullptr) self->order->push_back(self);
      self->answers.fetch_add(1, std::memory_order_release);
    };
  }
  void Wait() const {
    while (answers.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  }
};

TEST(NullDevice, AnswersInsideSubmitAndStoresNothing) {
  auto device = NullDevice::Create({.volatile_cache = true});
  auto queue = RequestQueue::Create(device.get(), {.hardware_queues = 2});
  ASSERT_TRUE(queue.ok()) << queue.status();
  TestBio write(Operation::kWrite, 0, 4096, 0, 0x11);
  TestBio read(Operation::kRead, 0, 4096, 0, 0x22);
  TestBio flush(Operation::kFlush, 0, 0);
  for (TestBio* bio : {&write, &read, &flush}) {
    (*queue)->Submit(&bio->bio);
    EXPECT_EQ(bio->ended, 1);
    EXPECT_EQ(bio->bio.error, 0);
  }
  EXPECT_EQ(read.buffer.get()[0], 0x22);
  EXPECT_EQ(device->flushes(), 1U);
}

TEST(NullDevice, AnswersInOrderAndNotBeforeTheLatency) {
  auto device = NullDevice::Create({.latency_us = 2000, .flush_latency_us = 20'000});
  auto queue = device->CreateQueue(0, 8);
  ASSERT_TRUE(queue.ok());
  std::vector<Answered*> order;
  Answered flush(Operation::kFlush, &order);
  Answered first(Operation::kRead, &order);
  Answered second(Operation::kWrite, &order);
  const auto start = std::chrono::steady_clock::now();
  for (Answered* request : {&flush, &first, &second}) (*queue)->Submit(request);
  for (Answered* request : {&flush, &first, &second}) request->Wait();
  queue->reset();
  EXPECT_EQ(first.answers + second.answers + flush.answers, 3);
  EXPECT_GE(first.at - start, std::chrono::milliseconds(2));
  EXPECT_GE(flush.at - start, std::chrono::milliseconds(20));
  EXPECT_LT(std::find(order.begin(), order.end(), &first), std::find(order.begin(), order.end(), &second));
  EXPECT_EQ(device->flushes(), 1U);
}

// No request is lost or answered twice, whatever comes between: submitters on two threads, freezing and quiescing at
// random on a third, a device that answers inside Submit or on its own threads.
class NullDeviceTraffic : public testing::TestWithParam<uint64_t> {};

struct Traffic {
  static constexpr uint32_t kBiosEach = 48;
  static constexpr uint64_t kRequestsEach = 20'000;

  RequestQueue* queue;
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> failed{0};

  // Keeps kBiosEach bios on the way until kRequestsEach have ended, then waits for the last.
  void Submit(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::unique_ptr<TestBio>> bios;
    for (uint32_t i = 0; i < kBiosEach; ++i) {
      const Operation operation = i % 16 == 0 ? Operation::kFlush : i % 3 == 0 ? Operation::kWrite : Operation::kRead;
      const uint64_t length = operation == Operation::kFlush ? 0 : 4096;
      const uint32_t flags = operation == Operation::kWrite && i % 4 == 0 ? kBioPreflush | kBioFua : 0;
      bios.push_back(std::make_unique<TestBio>(operation, 0, length, flags));
      bios.back()->ended = 1;
    }
    for (uint64_t sent = 0; sent < kRequestsEach;) {
      TestBio* bio = bios[random() % kBiosEach].get();
      if (bio->ended.load(std::memory_order_acquire) == 0) {
        std::this_thread::yield();
        continue;
      }
      NoteEnd(bio);
      if (bio->bio.operation != Operation::kFlush) bio->bio.offset_bytes = random() % 1024 * 4096;
      bio->ended = 0;
      queue->Submit(&bio->bio);
      ++sent;
    }
    for (const auto& bio : bios) {
      while (bio->ended.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      NoteEnd(bio.get());
    }
    ended -= kBiosEach;  // each bio counted once before it was first sent
  }
  void NoteEnd(TestBio* bio) {
    ended += static_cast<uint64_t>(bio->ended.load());
    if (bio->bio.error != 0) ++failed;
  }
};

void Disturb(RequestQueue* queue, CheckerDevice* checker, std::mt19937_64* random) {
  if ((*random)() % 2 == 0) {
    queue->Freeze();
    EXPECT_EQ(checker->in_flight(), 0U);
    checker->DispatchIsStopped(true);
    std::this_thread::yield();
    checker->DispatchIsStopped(false);
    queue->Unfreeze();
  } else {
    queue->Quiesce();
    checker->DispatchIsStopped(true);
    std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 200));
    checker->DispatchIsStopped(false);
    queue->Unquiesce();
  }
  std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 500));
}

TEST_P(NullDeviceTraffic, NothingIsLostOrAnsweredTwice) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  auto device =
      NullDevice::Create({.volatile_cache = true, .latency_us = seed % 2 * 20, .flush_latency_us = seed % 2 * 100});
  CheckerDevice checker(device.get());
  {
    auto queue =
        RequestQueue::Create(&checker, {.hardware_queues = static_cast<uint32_t>(1 + seed % 4), .queue_depth = 8});
    ASSERT_TRUE(queue.ok()) << queue.status();
    Traffic traffic{queue->get()};
    std::atomic<bool> stop{false};
    std::thread disturber([&] {
      std::mt19937_64 random(seed);
      while (!stop.load()) Disturb(queue->get(), &checker, &random);
    });
    std::vector<std::thread> submitters;
    for (uint64_t i = 0; i < 2; ++i) submitters.emplace_back([&, i] { traffic.Submit(seed * 2 + i); });
    for (std::thread& submitter : submitters) submitter.join();
    stop.store(true);
    disturber.join();
    EXPECT_EQ(traffic.ended, 2 * Traffic::kRequestsEach);
    EXPECT_EQ(traffic.failed, 0U);
  }
  EXPECT_EQ(checker.in_flight(), 0U);
  EXPECT_EQ(checker.faults(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NullDeviceTraffic, testing::Range<uint64_t>(1, 5));

}  // namespace
}  // namespace elidefs::blockio
