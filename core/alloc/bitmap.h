// Bits of on-disk bitmaps (bytes, least significant bit first) and of word arrays with the same order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"

namespace elidefs::core {

inline bool TestBit(const uint8_t* bitmap, uint32_t bit) {
  return ((bitmap[bit / 8] >> (bit % 8)) & 1U) != 0;
}
inline void SetBit(uint8_t* bitmap, uint32_t bit) {
  bitmap[bit / 8] = static_cast<uint8_t>(bitmap[bit / 8] | (1U << (bit % 8)));
}
inline void ClearBit(uint8_t* bitmap, uint32_t bit) {
  bitmap[bit / 8] = static_cast<uint8_t>(bitmap[bit / 8] & ~(1U << (bit % 8)));
}

// The bits [first, end) of a word, `first` < 64 and first < end; end may exceed 64.
inline uint64_t WordMask(uint32_t first, uint32_t end) {
  const uint64_t low = ~0ULL << first;
  return end >= 64 ? low : low & ~(~0ULL << end);
}

// Calls visit(word_index, mask) for the words that hold the bits [first, end).
template <typename Visit>
void ForEachWord(uint32_t first, uint32_t end, Visit visit) {
  for (uint32_t bit = first; bit < end; bit = (bit / 64 + 1) * 64)
    visit(bit / 64, WordMask(bit % 64, end - bit / 64 * 64));
}

inline void SetRun(absl::Span<uint64_t> words, uint32_t first, uint32_t end) {
  ForEachWord(first, end, [&](uint32_t index, uint64_t mask) { words[index] |= mask; });
}
inline void ClearRun(absl::Span<uint64_t> words, uint32_t first, uint32_t end) {
  ForEachWord(first, end, [&](uint32_t index, uint64_t mask) { words[index] &= ~mask; });
}

// The first bit in [first, end) whose value is `value`, or `end`.
inline uint32_t FindBit(absl::Span<const uint64_t> words, uint32_t first, uint32_t end, bool value) {
  for (uint32_t bit = first; bit < end; bit = (bit / 64 + 1) * 64) {
    const uint64_t word = (value ? words[bit / 64] : ~words[bit / 64]) & WordMask(bit % 64, 64);
    if (word != 0) return std::min(end, bit / 64 * 64 + static_cast<uint32_t>(std::countr_zero(word)));
  }
  return end;
}

// The first `bits` bits of an on-disk bitmap as words; the rest of the last word is set.
inline std::vector<uint64_t> WordsOf(const uint8_t* bitmap, uint32_t bits) {
  std::vector<uint64_t> words((bits + 63) / 64, ~0ULL);
  for (uint32_t i = 0; i < bits; i += 8) {
    uint64_t byte = bitmap[i / 8];
    if (bits - i < 8) byte |= 0xFFU & (0xFFU << (bits - i));
    words[i / 64] = (words[i / 64] & ~(0xFFULL << (i % 64))) | (byte << (i % 64));
  }
  return words;
}

inline uint32_t CountClear(absl::Span<const uint64_t> words) {
  uint32_t clear = 0;
  for (const uint64_t word : words) clear += static_cast<uint32_t>(std::popcount(~word));
  return clear;
}

// The first bit in [first, end) of an on-disk bitmap that is clear (or set, by `value`), or `end`.
inline uint32_t FindBit(const uint8_t* bitmap, uint32_t first, uint32_t end, bool value) {
  const uint8_t uninteresting = value ? 0x00 : 0xFF;
  for (uint32_t bit = first; bit < end;) {
    if (bit % 8 == 0 && bitmap[bit / 8] == uninteresting) {
      bit += 8;
      continue;
    }
    if (TestBit(bitmap, bit) == value) return bit;
    ++bit;
  }
  return end;
}

}  // namespace elidefs::core
