#include "fuse/daemon_log.h"

#include <fuse3/fuse_log.h>
#include <syslog.h>
#include <unistd.h>

#include <cstdarg>
#include <string>

#include "absl/strings/str_cat.h"

namespace elidefs::fuse {
namespace {

int Priority(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return LOG_ERR;
    case Severity::kWarning:
      return LOG_WARNING;
    case Severity::kInfo:
      return LOG_INFO;
    case Severity::kDebug:
      return LOG_DEBUG;
  }
  return LOG_ERR;
}

void LibraryMessage(fuse_log_level level, const char* format, va_list arguments) {
  vsyslog(level, format, arguments);  // libfuse numbers its levels as syslog does
}

}  // namespace

void DaemonLog::UseSyslog() {
  openlog("elidefs", LOG_PID, LOG_DAEMON);
  fuse_set_log_func(LibraryMessage);
  syslog_.store(true);
}

void DaemonLog::Write(Severity severity, std::string_view message) {
  if (severity == Severity::kDebug && !debug_) return;
  if (syslog_.load()) {
    syslog(Priority(severity), "%.*s", static_cast<int>(message.size()), message.data());
    return;
  }
  // One write, so that lines of several threads do not mix.
  const std::string line = absl::StrCat("elidefs: ", std::string(message), "\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace elidefs::fuse
