// Log messages go to a sink that the embedder supplies; the library itself never writes to stderr.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

namespace elidefs {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

// Called from any thread; must be thread-safe. An empty function drops the message.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// A cheap, copyable handle on the sink.
class Logger {
 public:
  Logger() = default;
  explicit Logger(LogSink sink) : sink_(std::move(sink)) {}
  void Error(std::string_view message) const { Write(LogLevel::kError, message); }
  void Warning(std::string_view message) const { Write(LogLevel::kWarning, message); }
  void Info(std::string_view message) const { Write(LogLevel::kInfo, message); }
  void Debug(std::string_view message) const { Write(LogLevel::kDebug, message); }

 private:
  void Write(LogLevel level, std::string_view message) const {
    if (sink_) sink_(level, message);
  }
  LogSink sink_;
};

}  // namespace elidefs
