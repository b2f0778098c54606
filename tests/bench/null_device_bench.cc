// What the block layer itself costs a request, beside fio's null engine.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "blockio/device/null_device.h"
#include "blockio/request_queue.h"
#include "tests/bench/bench_row.h"

namespace elidefs::bench {
namespace {

using blockio::Bio;
using blockio::NullDevice;
using blockio::RequestQueue;

constexpr uint32_t kBlockBytes = 4096;
constexpr uint32_t kDepth = 64;
constexpr uint64_t kBlocks = 16U << 20U;

// fio's nanoseconds a read of the same shape on one thread, its clock reads included; 0 where fio does not run.
double FioNanoseconds() {
  FILE* pipe = popen(
      "fio --name=null --ioengine=null --rw=randread --bs=4k --iodepth=64 --size=64g --norandommap --time_based "
      "--runtime=1 --gtod_reduce=0 --output-format=terse 2>/dev/null",
      "r");
  if (pipe == nullptr) return 0;
  char line[4096] = "";
  const bool read = fgets(line, sizeof(line), pipe) != nullptr;
  if (pclose(pipe) != 0 || !read) return 0;
  const char* at = line;
  for (int field = 1; field < 8; ++field) {  // terse version 3: the eighth is the reads a second
    while (*at != ';' && *at != 0) ++at;
    if (*at == ';') ++at;
  }
  const double reads_per_second = strtod(at, nullptr);
  return reads_per_second > 0 ? 1e9 / reads_per_second : 0;
}

// The device answers inside Submit, so each bio is free again when it returns.
void ReadAtRandom(RequestQueue* queue, std::vector<Bio>* bios, uint64_t count) {
  uint64_t random = 88172645463325252ULL;
  for (uint64_t i = 0; i < count; ++i) {
    random ^= random << 13U;
    random ^= random >> 7U;
    random ^= random << 17U;
    Bio* bio = &(*bios)[i % kDepth];
    bio->offset_bytes = random % kBlocks * kBlockBytes;
    queue->Submit(bio);
  }
}

}  // namespace

void NullDeviceBench(const BenchOptions& options, std::vector<BenchRow>* rows) {
  auto device = NullDevice::Create({.size_bytes = kBlocks * kBlockBytes, .max_queues = 1});
  auto queue = RequestQueue::Create(device.get(), {.queue_depth = kDepth});
  if (!queue.ok()) {
    fprintf(stderr, "null device: %s\n", queue.status().ToString().c_str());
    exit(1);
  }
  const std::unique_ptr<void, decltype(&free)> buffer(aligned_alloc(kBlockBytes, kBlockBytes), &free);
  iovec segment{buffer.get(), kBlockBytes};
  std::vector<Bio> bios(kDepth);
  for (Bio& bio : bios) {
    bio.length_bytes = kBlockBytes;
    bio.segments = &segment;
    bio.segment_count = 1;
    bio.end_io = [](Bio* done) {
      if (done->error != 0) abort();
    };
  }
  std::vector<double> own;
  std::vector<double> fio;
  for (uint32_t repeat = 0; repeat < options.repeats(); ++repeat) {
    own.push_back(NanosecondsEach(options.quick ? 1000 : 5'000'000,
                                  [&](uint64_t count) { ReadAtRandom(queue->get(), &bios, count); }));
    if (!options.quick) fio.push_back(FioNanoseconds());
  }
  const double value = Median(own);
  rows->push_back(
      {.name = "null device, 4 KiB random reads, 1 thread", .value = value, .unit = "ns", .ratio = value, .mark = 50});
  const double peer = Median(fio);
  if (peer == 0) return;
  rows->push_back({.name = "null device, 4 KiB random reads, 1 thread",
                   .value = value,
                   .unit = "ns",
                   .peer = "fio, null engine",
                   .ratio = value / peer,
                   .mark = 1.0 / 3});
}

}  // namespace elidefs::bench
