#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace elidefs {
namespace {

// The catalogue's CRC-32C inverts at the end; ext4's does not.
uint32_t Finished(std::string_view text) {
  return ~Crc32c(~0U, text.data(), text.size());
}

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(Finished("123456789"), 0xE3069283U);
  EXPECT_EQ(Finished(""), 0U);
  // RFC 3720, appendix B.4.
  const std::vector<uint8_t> zeroes(32, 0x00);
  EXPECT_EQ(~Crc32c(~0U, zeroes.data(), zeroes.size()), 0x8A9136AAU);
  const std::vector<uint8_t> ones(32, 0xFF);
  EXPECT_EQ(~Crc32c(~0U, ones.data(), ones.size()), 0x62A8AB43U);
  std::vector<uint8_t> ascending(32);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(~Crc32c(~0U, ascending.data(), ascending.size()), 0x46DD794EU);
}

TEST(Crc32c, PortableEqualsHardwareAtEveryLengthAndAlignment) {
  std::mt19937 random(7);
  std::vector<uint8_t> data(4200);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t start = 0; start < 9; ++start) {
    for (const size_t length : {0U, 1U, 7U, 8U, 9U, 15U, 16U, 63U, 1024U, 4091U}) {
      const uint32_t seed = random();
      EXPECT_EQ(Crc32c(seed, data.data() + start, length), Crc32cPortable(seed, data.data() + start, length));
    }
  }
}

TEST(Crc32c, ContinuesFromItsSeed) {
  const std::string_view text = "the quick brown fox";
  const uint32_t first = Crc32c(~0U, text.data(), 5);
  EXPECT_EQ(Crc32c(first, text.data() + 5, text.size() - 5), Crc32c(~0U, text.data(), text.size()));
}

TEST(Crc16, KnownVector) {
  // CRC-16/ARC starts from 0, CRC-16/MODBUS from ~0; same polynomial.
  EXPECT_EQ(Crc16(0, "123456789", 9), 0xBB3DU);
  EXPECT_EQ(Crc16(0xFFFF, "123456789", 9), 0x4B37U);
}

}  // namespace
}  // namespace elidefs
