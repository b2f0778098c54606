#include "core/journal/log_format.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crc32c.h"
#include "core/journal/log_map.h"

namespace elidefs::core {
namespace {

LogFormat V3(uint32_t block_bytes, bool is_64bit) {
  LogFormat format;
  format.block_bytes = block_bytes;
  format.is_64bit = is_64bit;
  format.checksum = LogChecksum::kV3;
  for (uint8_t i = 0; i < 16; ++i) format.uuid[i] = i;
  format.checksum_seed = Crc32c(~0U, format.uuid, sizeof(format.uuid));
  return format;
}

TEST(LogFormat, SizesOfTagsAndRecords) {
  LogFormat format = V3(1024, true);
  EXPECT_EQ(format.TagBytes(), 16U);
  EXPECT_EQ(format.TagsPerDescriptor(), 62U);
  EXPECT_EQ(format.RevokesPerBlock(), 125U);
  format.checksum = LogChecksum::kV2;
  EXPECT_EQ(format.TagBytes(), 14U);
  format.is_64bit = false;
  EXPECT_EQ(format.TagBytes(), 10U);
  EXPECT_EQ(format.RevokeRecordBytes(), 4U);
  format.checksum = LogChecksum::kNone;
  EXPECT_EQ(format.TagBytes(), 8U);
  EXPECT_EQ(format.TailBytes(), 0U);
}

TEST(LogFormat, DescriptorAndRevokeRoundTrip) {
  for (const bool is_64bit : {false, true}) {
    const LogFormat format = V3(1024, is_64bit);
    std::vector<LogTag> tags;
    std::vector<BlockNumber> revoked;
    for (uint32_t i = 0; i < format.TagsPerDescriptor(); ++i) {
      const BlockNumber high = is_64bit ? BlockNumber{i} << 33U : 0;
      tags.push_back({high + i + 5, i % 3 == 0, i * 77});
      revoked.push_back(high + i);
    }
    std::vector<uint8_t> block(1024);
    EncodeDescriptor(format, 9, tags, block.data());
    EXPECT_TRUE(IsTailChecksumRight(format, block));
    const std::vector<LogTag> parsed = ParseDescriptor(format, block);
    ASSERT_EQ(parsed.size(), tags.size());
    for (size_t i = 0; i < tags.size(); ++i) {
      EXPECT_EQ(parsed[i].block, tags[i].block);
      EXPECT_EQ(parsed[i].escaped, tags[i].escaped);
      EXPECT_EQ(parsed[i].checksum, tags[i].checksum);
    }
    block[500] ^= 1U;
    EXPECT_FALSE(IsTailChecksumRight(format, block));

    std::vector<uint8_t> revoke_block(1024);
    EncodeRevoke(format, 9, revoked, revoke_block.data());
    std::vector<BlockNumber> found;
    EXPECT_TRUE(IsTailChecksumRight(format, revoke_block));
    EXPECT_TRUE(ParseRevoke(format, revoke_block, &found));
    EXPECT_EQ(found, revoked);
    revoke_block[12] = 0x7F;  // a count beyond the block
    EXPECT_FALSE(ParseRevoke(format, revoke_block, &found));
  }
}

TEST(LogFormat, BigEndianCrc32MatchesItsCheckValue) {
  // CRC-32/MPEG-2 of "123456789": the same polynomial, order and seed, no final inversion.
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32BigEndian(~0U, {reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0x0376E6E7U);
}

TEST(LogFormat, NothingInADescriptorLeadsOutOfIt) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<uint8_t> block(1024);
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<uint8_t>((seed * 2654435761U + i * i * 40503U) >> 9U);
    LogFormat format = V3(1024, seed % 2 == 0);
    format.checksum = static_cast<LogChecksum>(seed % 4);
    EXPECT_LE(ParseDescriptor(format, block).size(), 1024U / 8);
    std::vector<BlockNumber> revoked;
    (void)ParseRevoke(format, block, &revoked);
    EXPECT_LE(revoked.size(), 1024U / 4);
  }
}

TEST(LogMap, MapsAndRefuses) {
  const auto map = LogMap::Create({{100, 10}, {50, 5}}, 1000);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->size(), 15U);
  EXPECT_EQ(map->Physical(0), 100U);
  EXPECT_EQ(map->Physical(9), 109U);
  EXPECT_EQ(map->Physical(10), 50U);
  EXPECT_EQ(map->ContiguousFrom(8), 2U);
  EXPECT_TRUE(map->Contains(54));
  EXPECT_FALSE(map->Contains(55));
  EXPECT_FALSE(map->Contains(99));
  EXPECT_FALSE(LogMap::Create({{100, 10}, {105, 5}}, 1000).ok());
  EXPECT_FALSE(LogMap::Create({{995, 10}}, 1000).ok());
  EXPECT_FALSE(LogMap::Create({}, 1000).ok());
}

}  // namespace
}  // namespace elidefs::core
