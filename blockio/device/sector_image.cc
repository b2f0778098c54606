#include "blockio/device/sector_image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mix.h"

namespace elidefs::blockio {
namespace {

constexpr uint64_t kPrimes[4] = {0x9E3779B97F4A7C15ULL, 0xC2B2AE3D27D4EB4FULL, 0x165667B19E3779F9ULL,
                                 0xD6E8FEB86659FD93ULL};

// The part of one sector in the fingerprint of an image: independent for every place and content.
uint64_t Share(uint64_t index, uint64_t hash) {
  return MixBits(hash ^ MixBits(index + 1));
}

}  // namespace

uint64_t HashOfSector(const uint8_t* sector) {
  // Four lanes, so that the multiplications overlap.
  uint64_t lanes[4] = {kPrimes[3], kPrimes[2], kPrimes[1], kPrimes[0]};
  for (uint64_t at = 0; at < kImageSectorBytes; at += sizeof(lanes)) {
    uint64_t words[4];
    std::memcpy(words, sector + at, sizeof(words));
    for (size_t lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * kPrimes[lane];
      lanes[lane] ^= lanes[lane] >> 29U;
    }
  }
  return MixBits(lanes[0] + MixBits(lanes[1] + MixBits(lanes[2] + MixBits(lanes[3]))));
}

BaseImage::BaseImage(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  for (uint64_t index = 0; index < bytes_.size() / kImageSectorBytes; ++index) {
    hashes_.push_back(HashOfSector(bytes_.data() + index * kImageSectorBytes));
    fingerprint_ ^= Share(index, hashes_.back());
  }
}

SectorImage::SectorImage(std::shared_ptr<const BaseImage> base)
    : base_(std::move(base)), sectors_(base_->sectors()), hashes_(base_->hashes()), fingerprint_(base_->fingerprint()) {
  for (uint64_t index = 0; index < sectors_.size(); ++index) {
    sectors_[index] = base_->bytes().data() + index * kImageSectorBytes;
  }
}

void SectorImage::Note(uint64_t index) {
  if (marked_) undo_.push_back({index, sectors_[index], hashes_[index]});
}

void SectorImage::Set(uint64_t index, const uint8_t* content, uint64_t hash) {
  Note(index);
  fingerprint_ ^= Share(index, hashes_[index]) ^ Share(index, hash);
  sectors_[index] = content;
  hashes_[index] = hash;
}

void SectorImage::Write(uint64_t offset_bytes, const uint8_t* bytes, uint64_t length_bytes) {
  written_.emplace_back(bytes, bytes + length_bytes);
  for (uint64_t done = 0; done < length_bytes; done += kImageSectorBytes) {
    const uint64_t index = (offset_bytes + done) / kImageSectorBytes;
    Note(index);
    sectors_[index] = written_.back().data() + done;
  }
}

void SectorImage::Read(uint64_t offset_bytes, uint8_t* bytes, uint64_t length_bytes) const {
  for (uint64_t done = 0; done < length_bytes; done += kImageSectorBytes) {
    std::memcpy(bytes + done, sectors_[(offset_bytes + done) / kImageSectorBytes],
                std::min(kImageSectorBytes, length_bytes - done));
  }
}

std::vector<uint8_t> SectorImage::Bytes() const {
  std::vector<uint8_t> bytes(size_bytes());
  Read(0, bytes.data(), bytes.size());
  return bytes;
}

void SectorImage::Mark() {
  marked_ = true;
  marked_fingerprint_ = fingerprint_;
}

void SectorImage::Rollback() {
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) {
    sectors_[undo->index] = undo->content;
    hashes_[undo->index] = undo->hash;
  }
  undo_.clear();
  written_.clear();
  fingerprint_ = marked_fingerprint_;
  marked_ = false;
}

}  // namespace elidefs::blockio
