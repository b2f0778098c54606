// MixBits: SplitMix64's output function (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
// For decisions that depend on a seed and a number alone, and for hashes of integers; not for secrets.
#pragma once

#include <cstdint>

namespace elidefs {

inline uint64_t MixBits(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

}  // namespace elidefs
