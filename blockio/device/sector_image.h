// SectorImage: the content of a device as a table of 512-byte sectors, most of which it shares with the image it began
// as and with the writes of a history. Copying, comparing and restoring cost what has changed, not what the device
// holds: the crash laboratory looks at thousands of images a second. Threads: BaseImage may be shared, a SectorImage
// belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace elidefs::blockio {

inline constexpr uint64_t kImageSectorBytes = 512;  // the unit of tearing

// Of the content of a sector, wherever it lies.
uint64_t HashOfSector(const uint8_t* sector);

// Bytes that never change, with the hash of every sector. A multiple of 512 bytes.
class BaseImage {
 public:
  explicit BaseImage(std::vector<uint8_t> bytes);
  BaseImage(const BaseImage&) = delete;
  BaseImage& operator=(const BaseImage&) = delete;

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  const std::vector<uint64_t>& hashes() const { return hashes_; }
  uint64_t sectors() const { return hashes_.size(); }
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  const std::vector<uint8_t> bytes_;
  std::vector<uint64_t> hashes_;
  uint64_t fingerprint_ = 0;
};

class SectorImage {
 public:
  explicit SectorImage(std::shared_ptr<const BaseImage> base);

  uint64_t size_bytes() const { return sectors_.size() * kImageSectorBytes; }
  const uint8_t* sector(uint64_t index) const { return sectors_[index]; }
  // Equal for equal contents, and for different ones equal by accident only (64 bits). Not kept up by Write.
  uint64_t fingerprint() const { return fingerprint_; }

  // The sector becomes `content`, which stays the caller's and unchanged; `hash` is its HashOfSector.
  void Set(uint64_t index, const uint8_t* content, uint64_t hash);
  // Copies into the image; whole sectors.
  void Write(uint64_t offset_bytes, const uint8_t* bytes, uint64_t length_bytes);
  void Read(uint64_t offset_bytes, uint8_t* bytes, uint64_t length_bytes) const;
  std::vector<uint8_t> Bytes() const;

  // From here on changes are noted, so that Rollback can take them back. Not nested.
  void Mark();
  void Rollback();

 private:
  struct Undo {
    uint64_t index;
    const uint8_t* content;
    uint64_t hash;
  };
  void Note(uint64_t index);

  std::shared_ptr<const BaseImage> base_;
  std::vector<const uint8_t*> sectors_;
  std::vector<uint64_t> hashes_;
  uint64_t fingerprint_;
  bool marked_ = false;
  uint64_t marked_fingerprint_ = 0;
  std::vector<Undo> undo_;
  std::deque<std::vector<uint8_t>> written_;  // what Write has copied
};

}  // namespace elidefs::blockio
