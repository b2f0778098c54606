// usage: blockio_bench [--quick] [--json FILE]: the block layer's benchmarks; see scripts/bench.
#include <cstdio>
#include <cstring>

#include "tests/bench/bench_row.h"

namespace elidefs::bench {
namespace {

void PrintTable(const std::vector<BenchRow>& rows) {
  printf("%-42s %10s %-4s %-28s %8s %8s %s\n", "what", "value", "", "peer", "ratio", "mark", "meets");
  for (const BenchRow& row : rows) {
    char ratio[32] = "";
    char mark[32] = "";
    if (!row.peer.empty()) snprintf(ratio, sizeof(ratio), "%.3f", row.ratio);
    if (row.mark != 0) snprintf(mark, sizeof(mark), "%s %.3f", row.below ? "<=" : ">=", row.mark);
    printf("%-42s %10.3f %-4s %-28s %8s %8s %s\n", row.name.c_str(), row.value, row.unit.c_str(), row.peer.c_str(),
           ratio, mark, row.mark == 0 ? "" : (row.Meets() ? "yes" : "no"));
  }
}

// Names and units are our own literals and hold nothing that JSON would want escaped.
bool WriteJson(const std::vector<BenchRow>& rows, const char* path) {
  FILE* file = fopen(path, "w");
  if (file == nullptr) return false;
  fputs("[\n", file);
  for (size_t i = 0; i < rows.size(); ++i) {
    const BenchRow& row = rows[i];
    fprintf(
        file,
        R"(  {"name": "%s", "value": %.6g, "unit": "%s", "peer": "%s", "ratio": %.6g, "mark": %.6g, "meets": %s}%s)",
        row.name.c_str(), row.value, row.unit.c_str(), row.peer.c_str(), row.ratio, row.mark,
        row.Meets() ? "true" : "false", i + 1 < rows.size() ? ",\n" : "\n");
  }
  fputs("]\n", file);
  return fclose(file) == 0;
}

int Main(int argc, char** argv) {
  BenchOptions options;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--quick") == 0) {
      options.quick = true;
    } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      fprintf(stderr, "usage: %s [--quick] [--json FILE]\n", argv[0]);
      return 2;
    }
  }
  std::vector<BenchRow> rows;
  QuiesceRefBench(options, &rows);
  TagSetBench(options, &rows);
  NullDeviceBench(options, &rows);
  PrintTable(rows);
  if (json != nullptr && !WriteJson(rows, json)) {
    perror(json);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace elidefs::bench

int main(int argc, char** argv) {
  return elidefs::bench::Main(argc, argv);
}
