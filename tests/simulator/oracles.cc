#include "tests/simulator/oracles.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <regex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::simulator {
namespace {

constexpr size_t kHoleBytes = 4096;
constexpr int kLoopAttempts = 50;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  return text;
}

// A loop device over a file; it goes away with its last user, a mount included.
class LoopDevice {
 public:
  static absl::StatusOr<std::unique_ptr<LoopDevice>> Attach(int fd) {
    const Descriptor control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (control.get() < 0) return ErrnoError(errno, "/dev/loop-control");
    for (int attempt = 0; attempt < kLoopAttempts; ++attempt) {
      const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
      if (number < 0) return ErrnoError(errno, "no free loop device");
      const std::string path = absl::StrCat("/dev/loop", number);
      const int loop = open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (loop < 0) return ErrnoError(errno, path);
      loop_config config{};
      config.fd = static_cast<uint32_t>(fd);
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
      if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) return std::make_unique<LoopDevice>(path, loop);
      const int error = errno;
      close(loop);
      if (error != EBUSY) return ErrnoError(error, path);  // EBUSY: another process was faster
    }
    return ErrnoError(EBUSY, "no free loop device");
  }
  LoopDevice(std::string path, int fd) : path_(std::move(path)), descriptor_(fd) {}
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const Descriptor descriptor_;
};

absl::Status ObserveFolder(const std::string& folder, const std::string& prefix, ObservedTree* tree) {
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = item.path().filename();
    struct stat attributes {};
    if (lstat(item.path().c_str(), &attributes) != 0) return ErrnoError(errno, prefix + name);
    ObservedNode& node = (*tree)[prefix + name];
    node.inode = attributes.st_ino;
    node.links = attributes.st_nlink;
    node.size_bytes = static_cast<uint64_t>(attributes.st_size);
    if (S_ISDIR(attributes.st_mode)) {
      node.kind = NodeKind::kDirectory;
      const absl::Status status = ObserveFolder(item.path(), prefix + name + "/", tree);
      if (!status.ok()) return status;
    } else if (S_ISLNK(attributes.st_mode)) {
      node.kind = NodeKind::kSymlink;
      node.target = std::filesystem::read_symlink(item.path(), error);
    } else {
      const Descriptor file(open(item.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (file.get() < 0) return ErrnoError(errno, prefix + name);
      const std::string content = ReadAll(file.get());
      node.content.assign(content.begin(), content.end());
    }
  }
  return error ? ErrnoError(error.value(), folder) : absl::OkStatus();
}

}  // namespace

ImageFile::ImageFile(absl::Span<const uint8_t> image)
    : fd_(memfd_create("elidefs-image", MFD_CLOEXEC)), size_bytes_(image.size()) {
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(image.size())) != 0) throw std::runtime_error("memfd failed");
  path_ = absl::StrCat("/proc/", getpid(), "/fd/", fd_);
  const std::vector<uint8_t> zeroes(kHoleBytes, 0);
  for (size_t at = 0; at < image.size();) {
    size_t end = at;
    while (end < image.size() &&
           std::memcmp(image.data() + end, zeroes.data(), std::min(kHoleBytes, image.size() - end)) != 0) {
      end += std::min(kHoleBytes, image.size() - end);
    }
    if (end > at &&
        pwrite(fd_, image.data() + at, end - at, static_cast<off_t>(at)) != static_cast<ssize_t>(end - at)) {
      throw std::runtime_error("memfd write failed");
    }
    at = end + kHoleBytes;
  }
}

ImageFile::~ImageFile() {
  close(fd_);
}

std::vector<uint8_t> ImageFile::Read() const {
  std::vector<uint8_t> bytes(size_bytes_);
  if (pread(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("memfd read failed");
  }
  return bytes;
}

ProgramResult RunProgram(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  const Descriptor output(ends[0]);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment{const_cast<char*>("LC_ALL=C"), const_cast<char*>("PATH=/usr/sbin:/sbin:/usr/bin:/bin"),
                                 const_cast<char*>(test_support::ClockOfE2fsck().c_str()), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  const std::string folders[] = {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"};
  pid_t child = 0;
  int error = ENOENT;
  for (const std::string& folder : folders) {
    error = posix_spawn(&child, (folder + arguments[0]).c_str(), &actions, nullptr, argv.data(), environment.data());
    if (error == 0) break;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) throw std::runtime_error(absl::StrCat("cannot run ", arguments[0], ": ", std::strerror(error)));
  ProgramResult result;
  result.output = ReadAll(output.get());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

std::string ComplaintsOf(const std::string& output) {
  static const std::regex kHarmless(
      "e2fsck [0-9].*|Pass [0-9][A-Z]?: .*|.*: [0-9]+/[0-9]+ files \\([0-9.]+% non-contiguous\\), [0-9]+/[0-9]+ "
      "blocks|\\s*");
  std::string complaints;
  for (const auto line : absl::StrSplit(output, '\n')) {
    if (!std::regex_match(std::string(line), kHarmless)) absl::StrAppend(&complaints, line, "\n");
  }
  return complaints;
}

std::string CheckWithE2fsck(const ImageFile& image) {
  const ProgramResult result = RunProgram({"e2fsck", "-fn", image.path()});
  const std::string complaints = ComplaintsOf(result.output);
  if (result.exit_code == 0 && complaints.empty()) return "";
  return absl::StrCat("e2fsck -fn exits ", result.exit_code, ":\n", complaints);
}

std::string RecoverWithE2fsck(const ImageFile& image, std::vector<uint8_t>* after_replay) {
  ProgramResult result = RunProgram({"e2fsck", "-y", "-E", "journal_only", image.path()});
  if (result.exit_code != 0 && result.exit_code != 1) {
    return absl::StrCat("e2fsck -E journal_only exits ", result.exit_code, ":\n", result.output);
  }
  *after_replay = image.Read();
  result = RunProgram({"e2fsck", "-p", image.path()});
  static const std::regex kExpected(
      ".*: (recovering journal|Clearing orphaned inode .*|Truncating orphaned inode .*|clean, .*|[0-9]+/[0-9]+ "
      "files.*)|\\s*");
  for (const auto line : absl::StrSplit(result.output, '\n')) {
    if (!std::regex_match(std::string(line), kExpected)) {
      return absl::StrCat("e2fsck -p (exit status ", result.exit_code, "): ", line);
    }
  }
  if (result.exit_code != 0 && result.exit_code != 1) return absl::StrCat("e2fsck -p exits ", result.exit_code);
  const std::string problem = CheckWithE2fsck(image);
  return problem.empty() ? "" : absl::StrCat("after recovery by e2fsck: ", problem);
}

bool CanMount() {
  return geteuid() == 0 && access("/dev/loop-control", R_OK | W_OK) == 0;
}

// A program that another thread starts holds copies of this process's descriptors until it has executed: busy for a
// moment.
bool Unmount(const std::string& mount_point) {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    if (umount2(mount_point.c_str(), 0) == 0) return true;
    if (errno != EBUSY) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  umount2(mount_point.c_str(), MNT_DETACH);
  errno = EBUSY;
  return false;
}

absl::StatusOr<ObservedTree> ObserveWithKernel(const ImageFile& image, const std::string& folder) {
  std::string mount_point = (std::filesystem::temp_directory_path() / "elidefs_kernel_XXXXXX").string();
  if (mkdtemp(mount_point.data()) == nullptr) return ErrnoError(errno, "mkdtemp");
  absl::StatusOr<ObservedTree> result = ObservedTree{};
  {
    ELIDEFS_ASSIGN_OR_RETURN(const std::unique_ptr<LoopDevice> loop, LoopDevice::Attach(image.fd()));
    if (mount(loop->path().c_str(), mount_point.c_str(), "ext4", MS_NOATIME, "") != 0) {
      result = ErrnoError(errno, "the kernel does not mount the image");
    } else {
      const absl::Status status = ObserveFolder(mount_point + "/" + folder, "", &*result);
      if (!status.ok()) result = status;
      if (!Unmount(mount_point)) result = ErrnoError(errno, "umount");
    }
  }
  rmdir(mount_point.c_str());
  return result;
}

}  // namespace elidefs::simulator
