// What it costs to enter and leave a queue, beside what else could count its users.
#include <urcu/urcu-memb.h>

#include <array>
#include <atomic>
#include <functional>
#include <shared_mutex>
#include <thread>

#include "blockio/quiesce_ref.h"
#include "tests/bench/bench_row.h"

namespace elidefs::bench {
namespace {

using blockio::QuiesceRef;

struct alignas(64) ThreadCounter {
  std::atomic<uint64_t> entered{0};
  std::atomic<uint64_t> left{0};
};

// Counters of the thread's own, and nothing else: no door, so no way to close it.
struct PlainCounter {
  std::array<ThreadCounter, 4> counters;
  void Run(size_t thread, uint64_t count) {
    std::atomic<uint64_t>& counter = counters[thread].entered;
    for (uint64_t i = 0; i < count; ++i) {
      counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      Keep(i);
      counter.store(counter.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    }
  }
};

struct SharedAtomic {
  std::atomic<uint64_t> count{0};
  void Run(size_t /*thread*/, uint64_t repeats) {
    for (uint64_t i = 0; i < repeats; ++i) {
      count.fetch_add(1, std::memory_order_acquire);
      Keep(i);
      count.fetch_sub(1, std::memory_order_release);
    }
  }
};

struct SharedMutex {
  std::shared_mutex mutex;
  void Run(size_t /*thread*/, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const std::shared_lock<std::shared_mutex> lock(mutex);
      Keep(i);
    }
  }
};

// srcu_read_lock and srcu_read_unlock: a counter of the thread's own and a full barrier, twice.
struct SrcuLike {
  std::atomic<uint32_t> index{0};
  std::array<ThreadCounter, 4> counters;
  void Run(size_t thread, uint64_t count) {
    ThreadCounter& mine = counters[thread];
    for (uint64_t i = 0; i < count; ++i) {
      Keep(index.load(std::memory_order_relaxed) & 1U);
      mine.entered.store(mine.entered.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      Keep(i);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      mine.left.store(mine.left.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }
};

struct UserspaceRcu {
  void Run(size_t /*thread*/, uint64_t count) {
    urcu_memb_register_thread();
    for (uint64_t i = 0; i < count; ++i) {
      urcu_memb_read_lock();
      Keep(i);
      urcu_memb_read_unlock();
    }
    urcu_memb_unregister_thread();
  }
};

struct OurRef {
  QuiesceRef ref;
  void Run(size_t /*thread*/, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      ref.Enter();
      Keep(i);
      ref.Leave();
    }
  }
};

// Nanoseconds of one enter and leave on each of `threads` threads.
template <typename Subject>
double Measure(Subject* subject, size_t threads, uint64_t count) {
  std::vector<double> each(threads);
  std::atomic<size_t> arrived{0};
  std::vector<std::thread> running;
  for (size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      arrived.fetch_add(1);
      while (arrived.load() < threads) std::this_thread::yield();
      each[thread] = NanosecondsEach(count, [&](uint64_t repeats) { subject->Run(thread, repeats); });
    });
  }
  for (std::thread& thread : running) thread.join();
  return Median(each);
}

struct Peer {
  std::string name;
  std::function<double(size_t threads, uint64_t count)> run;
  double mark;
  bool below;
  std::vector<double> each;
};

// Microseconds until Freeze returns while threads come and go at full rate.
void FreezeLatency(const BenchOptions& options, std::vector<BenchRow>* rows) {
  QuiesceRef ref;
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 2; ++i) {
    users.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        ref.Enter();
        ref.Leave();
      }
    });
  }
  std::vector<double> microseconds;
  for (int i = 0; i < (options.quick ? 3 : 500); ++i) {
    microseconds.push_back(NanosecondsEach(1, [&](uint64_t) { ref.Freeze(); }) / 1000);
    ref.Unfreeze();
    std::this_thread::sleep_for(std::chrono::microseconds(options.quick ? 10 : 200));
  }
  stop.store(true);
  for (std::thread& user : users) user.join();
  const double median = Median(microseconds);
  const double worst = *std::max_element(microseconds.begin(), microseconds.end());
  rows->push_back({.name = "freeze, 2 threads, median", .value = median, .unit = "us", .ratio = median});
  rows->push_back({.name = "freeze, 2 threads, worst", .value = worst, .unit = "us", .ratio = worst});
}

}  // namespace

void QuiesceRefBench(const BenchOptions& options, std::vector<BenchRow>* rows) {
  const uint64_t count = options.quick ? 1000 : 5'000'000;
  for (const size_t threads : {1U, 2U}) {
    PlainCounter plain;
    SharedAtomic shared_atomic;
    SharedMutex shared_mutex;
    SrcuLike srcu_like;
    UserspaceRcu rcu;
    OurRef ours;
    const auto runner = [](auto* subject) {
      return [subject](size_t n, uint64_t repeats) { return Measure(subject, n, repeats); };
    };
    std::vector<Peer> peers = {{"plain counter per thread", runner(&plain), 1.5, true, {}},
                               {"SRCU-like, two barriers", runner(&srcu_like), 1.0 / 12, true, {}},
                               {"liburcu memb", runner(&rcu), 0, true, {}},
                               {"one std::atomic", runner(&shared_atomic), 0, true, {}},
                               {"std::shared_mutex", runner(&shared_mutex), 0, true, {}}};
    std::vector<double> own;
    for (uint32_t repeat = 0; repeat < options.repeats(); ++repeat) {
      for (Peer& peer : peers) {
        own.push_back(Measure(&ours, threads, count));
        peer.each.push_back(peer.run(threads, count));
      }
    }
    const double value = Median(own);
    const std::string name = "enter and leave, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    for (const Peer& peer : peers) {
      rows->push_back({.name = name,
                       .value = value,
                       .unit = "ns",
                       .peer = peer.name,
                       .ratio = value / Median(peer.each),
                       .mark = peer.mark,
                       .below = peer.below});
    }
  }
  FreezeLatency(options, rows);
}

}  // namespace elidefs::bench
