#include "base/endian.h"

#include <gtest/gtest.h>

#include <cstring>

namespace elidefs {
namespace {

TEST(Endian, BytesInMemory) {
  struct Packed {
    uint8_t odd;  // shows that no alignment is needed
    Le16 le16;
    Be16 be16;
    Le32 le32;
    Be32 be32;
    Le64 le64;
    Be64 be64;
  } packed{};
  static_assert(sizeof(Packed) == 29);
  packed.le16 = uint16_t{0x1234};
  packed.be16 = uint16_t{0x1234};
  packed.le32 = 0x12345678U;
  packed.be32 = 0x12345678U;
  packed.le64 = uint64_t{0x123456789ABCDEF0};
  packed.be64 = uint64_t{0x123456789ABCDEF0};
  const uint8_t expected[] = {0x34, 0x12, 0x12, 0x34, 0x78, 0x56, 0x34, 0x12, 0x12, 0x34, 0x56, 0x78, 0xF0, 0xDE,
                              0xBC, 0x9A, 0x78, 0x56, 0x34, 0x12, 0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};
  EXPECT_EQ(std::memcmp(&packed.le16, expected, sizeof(expected)), 0);
  EXPECT_EQ(packed.be32, 0x12345678U);
  EXPECT_EQ(packed.le64.Get(), 0x123456789ABCDEF0U);
}

TEST(Endian, ByteSwap) {
  static_assert(ByteSwap(uint8_t{0x12}) == 0x12);
  static_assert(ByteSwap(uint16_t{0x1234}) == 0x3412);
  static_assert(ByteSwap(0x12345678U) == 0x78563412U);
  static_assert(ByteSwap(uint64_t{0x0102030405060708}) == 0x0807060504030201U);
}

}  // namespace
}  // namespace elidefs
