// Where the program's messages go: the terminal until a background daemon is ready, syslog from then on.
#pragma once

#include <atomic>
#include <string_view>

#include "elidefs/options.h"

namespace elidefs::fuse {

// Thread-safe. Outlives every thread that logs.
class DaemonLog {
 public:
  explicit DaemonLog(bool debug) : debug_(debug) {}
  // Later messages, libfuse's included, go to syslog.
  void UseSyslog();
  void Write(Severity severity, std::string_view message);
  void Error(std::string_view message) { Write(Severity::kError, message); }
  void Warning(std::string_view message) { Write(Severity::kWarning, message); }
  void Info(std::string_view message) { Write(Severity::kInfo, message); }

 private:
  const bool debug_;  // also kDebug messages
  std::atomic<bool> syslog_{false};
};

}  // namespace elidefs::fuse
