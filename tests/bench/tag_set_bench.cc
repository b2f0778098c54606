// What it costs to set up the tags of many deep queues, and what a tag costs that is used.
#include "blockio/tag_set.h"
#include "tests/bench/bench_row.h"

namespace elidefs::bench {
namespace {

using blockio::Request;
using blockio::TagSet;

constexpr uint32_t kQueues = 16;
constexpr uint32_t kDepth = 1023;

}  // namespace

void TagSetBench(const BenchOptions& options, std::vector<BenchRow>* rows) {
  std::vector<double> unused;
  std::vector<double> used;
  for (uint32_t repeat = 0; repeat < (options.quick ? 1 : 51); ++repeat) {
    std::vector<std::unique_ptr<TagSet>> sets;
    unused.push_back(NanosecondsEach(1,
                                     [&](uint64_t) {
                                       for (uint32_t i = 0; i < kQueues; ++i)
                                         sets.push_back(TagSet::Create(nullptr, kDepth));
                                     }) /
                     1e6);
    used.push_back(NanosecondsEach(1,
                                   [&](uint64_t) {
                                     for (const auto& set : sets) {
                                       for (uint32_t i = 0; i < kDepth; ++i) Keep(set->Acquire());
                                     }
                                   }) /
                   1e6);
  }
  const double median = Median(unused);
  rows->push_back({.name = "tag sets 16 x 1023, set up", .value = median, .unit = "ms", .ratio = median, .mark = 0.3});
  const double all = Median(used);
  rows->push_back({.name = "tag sets 16 x 1023, each tag used once", .value = all, .unit = "ms", .ratio = all});
}

}  // namespace elidefs::bench
