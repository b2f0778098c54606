#include "tests/simulator/error_marks.h"

#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/journal_layout.h"
#include "core/ondisk/super_block.h"

namespace elidefs::simulator {
namespace {

constexpr uint64_t kLeastBlockBytes = 1024;

template <typename Struct>
Struct ReadAt(const blockio::SectorImage& image, uint64_t offset_bytes) {
  std::vector<uint8_t> bytes(sizeof(Struct));
  image.Read(offset_bytes, bytes.data(), bytes.size());
  Struct result;
  std::memcpy(&result, bytes.data(), sizeof(result));
  return result;
}

template <typename Struct>
void WriteAt(blockio::SectorImage& image, uint64_t offset_bytes, const Struct& value) {
  image.Write(offset_bytes, reinterpret_cast<const uint8_t*>(&value), sizeof(value));
}

}  // namespace

bool ClearErrorMarks(blockio::SectorImage& image) {
  bool found = false;
  auto super = ReadAt<core::SuperBlock>(image, core::kSuperBlockOffsetBytes);
  if ((super.s_state & core::kStateErrors) != 0) {
    super.s_state = static_cast<uint16_t>(super.s_state & ~core::kStateErrors);
    core::SealSuperBlock(&super);
    WriteAt(image, core::kSuperBlockOffsetBytes, super);
    found = true;
  }
  for (uint64_t at = kLeastBlockBytes; at < image.size_bytes(); at += kLeastBlockBytes) {
    core::JournalHeader header;
    std::memcpy(&header, image.sector(at / blockio::kImageSectorBytes), sizeof(header));
    if (header.h_magic != core::kJournalMagic || header.h_blocktype != core::kJournalSuperV2) continue;
    auto journal = ReadAt<core::JournalSuperBlock>(image, at);
    if (journal.s_errno == 0) continue;
    journal.s_errno = 0;
    journal.s_checksum = 0;
    journal.s_checksum = Crc32c(~0U, &journal, sizeof(journal));
    WriteAt(image, at, journal);
    found = true;
  }
  return found;
}

}  // namespace elidefs::simulator
