// Images made by mke2fs, and the commands that judge them: e2fsprogs are test oracles only. Header-only, so that every
// test program may use it. Threads: none of this is shared. Errors: a failed step throws, which fails the GoogleTest
// case.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace elidefs::test_support {

struct CommandResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr together
};

// What e2fsck is told of the time, a setting of its environment: a day ahead, because it complains of times that are to
// come, and the clock of a virtual machine may be set back between a test's writes and the check.
inline const std::string& ClockOfE2fsck() {
  static const std::string setting = "E2FSCK_TIME=" + std::to_string(time(nullptr) + 86400);
  return setting;
}

// Runs `command` in a shell, with the system's administration programs in its path.
inline CommandResult RunCommand(const std::string& command) {
  const std::string line =
      "exec 2>&1; export LC_ALL=C " + ClockOfE2fsck() + " PATH=\"$PATH:/usr/sbin:/sbin\"; " + command;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  CommandResult result;
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) result.output.append(buffer, got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// As RunCommand, for steps that must succeed.
inline std::string MustRun(const std::string& command) {
  CommandResult result = RunCommand(command);
  if (result.exit_code != 0) throw std::runtime_error(command + ": " + result.output);
  return std::move(result.output);
}

// A directory that goes away with the object.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "elidefs_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::vector<uint8_t> ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<uint8_t> bytes(std::filesystem::file_size(path));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline void WriteWholeFile(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

// A file with these bytes in a temporary directory of its own; for handing images to e2fsprogs.
class TempFile {
 public:
  explicit TempFile(const std::vector<uint8_t>& bytes, const std::string& name = "image")
      : path_(directory_.File(name)) {
    WriteWholeFile(path_, bytes);
  }
  const std::string& path() const { return path_; }
  std::vector<uint8_t> Read() const { return ReadWholeFile(path_); }

 private:
  TempDirectory directory_;
  std::string path_;
};

// Writes `bytes` to a new temporary file.
inline std::unique_ptr<TempFile> WriteTempFile(const std::vector<uint8_t>& bytes) {
  return std::make_unique<TempFile>(bytes);
}

// An image of `size_bytes` made by `mke2fs <mke2fs_options> -F -q`. Options not given take this machine's defaults.
inline std::vector<uint8_t> MakeImage(uint64_t size_bytes, const std::string& mke2fs_options) {
  TempDirectory directory;
  const std::string path = directory.File("image");
  std::ofstream(path, std::ios::binary).close();
  std::filesystem::resize_file(path, size_bytes);
  MustRun("mke2fs -F -q " + mke2fs_options + " " + path);
  return ReadWholeFile(path);
}

// As MakeImage, then `debugfs_commands` (one a line) are run on it with write access.
inline std::vector<uint8_t> ChangeImage(const std::vector<uint8_t>& image, const std::string& debugfs_commands) {
  TempDirectory directory;
  const std::string path = directory.File("image");
  WriteWholeFile(path, image);
  WriteWholeFile(directory.File("commands"), std::vector<uint8_t>(debugfs_commands.begin(), debugfs_commands.end()));
  MustRun("debugfs -w -f " + directory.File("commands") + " " + path);
  return ReadWholeFile(path);
}

// `e2fsck -fn`: 0 and a report without complaints mean a sound volume (complaints are lines between the passes).
inline CommandResult CheckImage(const std::vector<uint8_t>& image) {
  const TempFile file(image);
  return RunCommand("e2fsck -fn " + file.path());
}

}  // namespace elidefs::test_support
