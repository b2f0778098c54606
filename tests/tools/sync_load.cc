// Writes a set of files, then syncs each of them in turn, and prints how long both took.
//
// The load that flush elision is for: every write is finished before the first sync starts, so one device flush could
// serve all the syncs. Output: one line `write_seconds=S sync_seconds=S files=N bytes=N`.
#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t kAlignmentBytes = 4096;  // enough for O_DIRECT on every device

struct Options {
  uint64_t files = 32;
  uint64_t size_bytes = 1U << 20U;
  uint64_t block_bytes = 4096;
  std::string sync = "fdatasync";
  bool direct = false;
  bool overwrite = false;
  std::string directory;
  std::string prefix = "file";
};

void PrintUsage() {
  std::fputs(
      "usage: sync_load --dir D [--files N] [--size BYTES] [--block BYTES] [--sync fdatasync|fsync|none]\n"
      "                 [--direct] [--prefix P] [--overwrite]\n"
      "Writes N files P0..P(N-1) of BYTES each in D, then syncs each in turn. --overwrite requires that they exist\n"
      "and leaves their length alone; otherwise they must not exist.\n",
      stderr);
}

bool ParseNumber(const char* text, uint64_t* value) {
  char* end = nullptr;
  errno = 0;
  *value = std::strtoull(text, &end, 10);
  return errno == 0 && end != text && *end == '\0' && *value > 0;
}

bool ParseOptions(int argc, char** argv, Options* options) {
  static const option kLongOptions[] = {{"files", required_argument, nullptr, 'n'},
                                        {"size", required_argument, nullptr, 's'},
                                        {"block", required_argument, nullptr, 'b'},
                                        {"sync", required_argument, nullptr, 'y'},
                                        {"direct", no_argument, nullptr, 'd'},
                                        {"dir", required_argument, nullptr, 'D'},
                                        {"prefix", required_argument, nullptr, 'p'},
                                        {"overwrite", no_argument, nullptr, 'o'},
                                        {nullptr, 0, nullptr, 0}};
  int letter = 0;
  bool valid = true;
  while ((letter = getopt_long(argc, argv, "", kLongOptions, nullptr)) != -1) {
    switch (letter) {
      case 'n':
        valid = valid && ParseNumber(optarg, &options->files);
        break;
      case 's':
        valid = valid && ParseNumber(optarg, &options->size_bytes);
        break;
      case 'b':
        valid = valid && ParseNumber(optarg, &options->block_bytes);
        break;
      case 'y':
        options->sync = optarg;
        break;
      case 'd':
        options->direct = true;
        break;
      case 'D':
        options->directory = optarg;
        break;
      case 'p':
        options->prefix = optarg;
        break;
      case 'o':
        options->overwrite = true;
        break;
      default:
        return false;
    }
  }
  const bool known_sync = options->sync == "fdatasync" || options->sync == "fsync" || options->sync == "none";
  return valid && known_sync && optind == argc && !options->directory.empty();
}

// Prints what failed on which file; the caller exits with 1.
bool Fail(const char* call, const std::string& path) {
  std::fprintf(stderr, "sync_load: %s %s: %s\n", call, path.c_str(), std::strerror(errno));
  return false;
}

bool WriteFile(int fd, const std::string& path, const Options& options, const char* buffer) {
  for (uint64_t done = 0; done < options.size_bytes;) {
    const uint64_t left = options.size_bytes - done;
    const uint64_t length = left < options.block_bytes ? left : options.block_bytes;
    const ssize_t written = pwrite(fd, buffer, length, static_cast<off_t>(done));
    if (written <= 0) return Fail("pwrite", path);
    done += static_cast<uint64_t>(written);
  }
  return true;
}

bool Sync(int fd, const std::string& path, const std::string& kind) {
  if (kind == "fdatasync" && fdatasync(fd) != 0) return Fail("fdatasync", path);
  if (kind == "fsync" && fsync(fd) != 0) return Fail("fsync", path);
  return true;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool Run(const Options& options) {
  const size_t buffer_bytes = (options.block_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  const std::unique_ptr<char, decltype(&std::free)> buffer(
      static_cast<char*>(std::aligned_alloc(kAlignmentBytes, buffer_bytes)), &std::free);
  if (buffer == nullptr) return Fail("aligned_alloc", std::to_string(buffer_bytes));
  std::memset(buffer.get(), options.overwrite ? 0x5A : 0xA5, buffer_bytes);

  const int flags = O_WRONLY | O_CLOEXEC | (options.direct ? O_DIRECT : 0) | (options.overwrite ? 0 : O_CREAT | O_EXCL);
  std::vector<int> descriptors;
  std::vector<std::string> paths;
  const auto write_start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < options.files; ++i) {
    paths.push_back(options.directory + "/" + options.prefix + std::to_string(i));
    descriptors.push_back(open(paths.back().c_str(), flags, 0644));
    if (descriptors.back() < 0) return Fail("open", paths.back());
    if (!WriteFile(descriptors.back(), paths.back(), options, buffer.get())) return false;
  }
  const double write_seconds = SecondsSince(write_start);

  const auto sync_start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < descriptors.size(); ++i) {
    if (!Sync(descriptors[i], paths[i], options.sync)) return false;
  }
  const double sync_seconds = SecondsSince(sync_start);
  for (size_t i = 0; i < descriptors.size(); ++i) {
    if (close(descriptors[i]) != 0) return Fail("close", paths[i]);
  }
  std::printf("write_seconds=%.6f sync_seconds=%.6f files=%llu bytes=%llu\n", write_seconds, sync_seconds,
              static_cast<unsigned long long>(options.files),
              static_cast<unsigned long long>(options.files * options.size_bytes));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, &options)) {
    PrintUsage();
    return 2;
  }
  return Run(options) ? 0 : 1;
}
