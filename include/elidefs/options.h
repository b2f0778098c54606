// Options of a volume. All bounds name their unit.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace elidefs {

enum class ErrorPolicy : uint8_t { kRemountReadOnly, kContinue, kPanic };
enum class Severity : uint8_t { kError, kWarning, kInfo, kDebug };

struct VolumeOptions {
  bool read_only = false;
  ErrorPolicy errors = ErrorPolicy::kRemountReadOnly;
  // The running transaction is committed at this age. A periodic commit costs up to two flushes that nobody asked for.
  uint32_t commit_interval_ms = 30000;
  // Write-behind: data accepted from writers and not yet written. Beyond it a write is answered when the device has it.
  uint64_t write_behind_bytes = 32U << 20U;
  // The most a sync waits for writes of *other* files that were accepted before it, so that one flush serves them all.
  uint32_t group_wait_ms = 1000;
  uint64_t metadata_cache_bytes = 64U << 20U;
  uint32_t hardware_queues = 0;  // 0: one per CPU, at most 4
  uint32_t queue_depth = 64;
  uint32_t worker_threads = 2;
  bool update_atime = true;  // relatime rule; false: noatime
  // Receives log messages from any thread.
  std::function<void(Severity, std::string_view)> log;
};

}  // namespace elidefs
