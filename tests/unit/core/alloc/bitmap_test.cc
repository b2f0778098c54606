#include "core/alloc/bitmap.h"

#include <gtest/gtest.h>

#include <random>

namespace elidefs::core {
namespace {

TEST(BitmapTest, WordsMatchBits) {
  std::mt19937 random(3);
  for (const uint32_t bits : {1U, 7U, 8U, 63U, 64U, 65U, 200U, 1000U}) {
    std::vector<uint8_t> bytes((bits + 7) / 8);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() & random());
    const std::vector<uint64_t> words = WordsOf(bytes.data(), bits);
    uint32_t clear = 0;
    for (uint32_t bit = 0; bit < words.size() * 64; ++bit) {
      const bool expected = bit >= bits || TestBit(bytes.data(), bit);
      EXPECT_EQ((words[bit / 64] >> (bit % 64) & 1U) != 0, expected) << bit;
      clear += expected ? 0 : 1;
    }
    EXPECT_EQ(CountClear(words), clear);
    for (const bool value : {false, true}) {
      for (uint32_t first = 0; first < bits; first += 3) {
        uint32_t expected = first;
        while (expected < bits && TestBit(bytes.data(), expected) != value) ++expected;
        EXPECT_EQ(FindBit(words, first, bits, value), expected);
        EXPECT_EQ(FindBit(bytes.data(), first, bits, value), expected);
      }
    }
  }
}

TEST(BitmapTest, Runs) {
  for (uint32_t first = 0; first < 130; first += 13) {
    for (uint32_t end = first + 1; end <= 192; end += 7) {
      std::vector<uint64_t> words(3, 0);
      SetRun(absl::MakeSpan(words), first, end);
      EXPECT_EQ(CountClear(words), 192 - (end - first));
      EXPECT_EQ(FindBit(words, 0, 192, true), first);
      EXPECT_EQ(FindBit(words, first, 192, false), end);
      ClearRun(absl::MakeSpan(words), first, end);
      EXPECT_EQ(CountClear(words), 192U);
    }
  }
}

}  // namespace
}  // namespace elidefs::core
