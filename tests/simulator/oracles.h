// Oracles: judges of an image that are not elidefs: e2fsck and the kernel's ext4. Images are handed over in memory
// (memfd), so nothing stays behind whatever happens. Threads: thread-safe. Errors: a text, empty when all is well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/simulator/model.h"

namespace elidefs::simulator {

// An image as an anonymous file that other programs open by path().
class ImageFile {
 public:
  // Runs of zeroes become holes.
  explicit ImageFile(absl::Span<const uint8_t> image);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::vector<uint8_t> Read() const;

 private:
  int fd_ = -1;
  size_t size_bytes_ = 0;
  std::string path_;
};

struct ProgramResult {
  int exit_code = -1;
  std::string output;
};
// Found in the path or in the folders of the administration programs. No shell, and cheap to call often.
ProgramResult RunProgram(const std::vector<std::string>& arguments);

// Lines of e2fsck that are neither its banner, a pass, nor the summary.
std::string ComplaintsOf(const std::string& output);

// `e2fsck -fn`: must exit 0 and print no complaint.
std::string CheckWithE2fsck(const ImageFile& image);
// Step 2: `e2fsck -y -E journal_only`, then `-p` with nothing but recovery and orphan messages, then `-fn`. Changes the
// image; `after_replay` receives it as it is after the first of the three.
std::string RecoverWithE2fsck(const ImageFile& image, std::vector<uint8_t>* after_replay);

// True for root with loop devices: step 4 is possible.
bool CanMount();
// Step 4: mounts the image with the kernel's ext4 (which replays the journal) and reads the tree below `folder` (no
// leading slash). Changes the image.
absl::StatusOr<ObservedTree> ObserveWithKernel(const ImageFile& image, const std::string& folder);

}  // namespace elidefs::simulator
