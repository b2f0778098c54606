#include "core/directory/directory_hash.h"

#include <algorithm>
#include <array>
#include <bit>

namespace elidefs::core {
namespace {

using State = std::array<uint32_t, 4>;

constexpr State kMd4InitialState = {0x67452301U, 0xEFCDAB89U, 0x98BADCFEU, 0x10325476U};
constexpr uint32_t kLargestHash = 0xFFFFFFFEU;  // means end of directory in a position

uint32_t CharacterValue(char character, bool is_unsigned) {
  // Sign extension is the point: older volumes were hashed with the machine's plain char.
  return is_unsigned ? static_cast<uint32_t>(static_cast<uint8_t>(character))
                     : static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(character)));
}

// One chunk of a name as `kWords` big-endian style words; unused words and the unused top of the last one hold the
// length of what was left of the name, repeated in every byte.
template <size_t kWords>
std::array<uint32_t, kWords> PackChunk(std::string_view rest, bool is_unsigned) {
  const auto left = static_cast<uint32_t>(rest.size());
  const uint32_t halves = left | (left << 8U);
  const uint32_t padding = halves | (halves << 16U);
  std::array<uint32_t, kWords> words;
  words.fill(padding);
  const size_t used = std::min(rest.size(), kWords * 4);
  for (size_t i = 0; i < used; ++i) {
    uint32_t& word = words[i / 4];
    word = (word << 8U) + CharacterValue(rest[i], is_unsigned);
  }
  return words;
}

uint32_t Choose(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) | (~x & z);
}
uint32_t Majority(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) | (x & z) | (y & z);
}
uint32_t Parity(uint32_t x, uint32_t y, uint32_t z) {
  return x ^ y ^ z;
}

using Md4Function = uint32_t (*)(uint32_t, uint32_t, uint32_t);
struct Md4Round {
  Md4Function function;
  uint32_t constant;  // RFC 1320
  std::array<uint8_t, 8> word_order;
  std::array<uint8_t, 4> rotations;
};
constexpr std::array<Md4Round, 3> kHalfMd4Rounds = {{
    {Choose, 0U, {0, 1, 2, 3, 4, 5, 6, 7}, {3, 7, 11, 19}},
    {Majority, 0x5A827999U, {1, 3, 5, 7, 0, 2, 4, 6}, {3, 5, 9, 13}},
    {Parity, 0x6ED9EBA1U, {3, 7, 2, 6, 1, 5, 0, 4}, {3, 9, 11, 15}},
}};

void HalfMd4(State& state, const std::array<uint32_t, 8>& words) {
  State s = state;
  for (const Md4Round& round : kHalfMd4Rounds) {
    for (size_t step = 0; step < 8; ++step) {
      // The register written rotates backwards: a, d, c, b, a, ...
      const size_t target = (4 - step % 4) % 4;
      const uint32_t mixed = round.function(s[(target + 1) % 4], s[(target + 2) % 4], s[(target + 3) % 4]);
      s[target] =
          std::rotl(s[target] + mixed + words[round.word_order[step]] + round.constant, round.rotations[step % 4]);
    }
  }
  for (size_t i = 0; i < 4; ++i) state[i] += s[i];
}

void Tea(State& state, const std::array<uint32_t, 4>& key) {
  constexpr uint32_t kDelta = 0x9E3779B9U;
  constexpr int kCycles = 16;
  uint32_t left = state[0];
  uint32_t right = state[1];
  uint32_t sum = 0;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    sum += kDelta;
    left += ((right << 4U) + key[0]) ^ (right + sum) ^ ((right >> 5U) + key[1]);
    right += ((left << 4U) + key[2]) ^ (left + sum) ^ ((left >> 5U) + key[3]);
  }
  state[0] += left;
  state[1] += right;
}

uint32_t Legacy(std::string_view name, bool is_unsigned) {
  uint32_t current = 0x12A3FE2DU;
  uint32_t previous = 0x37ABE8F9U;
  for (const char character : name) {
    uint32_t next = previous + (current ^ (CharacterValue(character, is_unsigned) * 7152373U));
    if ((next & 0x80000000U) != 0) next -= 0x7FFFFFFFU;
    previous = current;
    current = next;
  }
  return current << 1U;
}

template <size_t kWords, typename Mix>
void ForEachChunk(std::string_view name, bool is_unsigned, State& state, Mix mix) {
  while (!name.empty()) {
    mix(state, PackChunk<kWords>(name, is_unsigned));
    name.remove_prefix(std::min(name.size(), kWords * 4));
  }
}

}  // namespace

std::optional<uint32_t> DirectoryHash(std::string_view name, uint8_t version, const uint32_t seed[4]) {
  State state = kMd4InitialState;
  if (std::any_of(seed, seed + 4, [](uint32_t word) { return word != 0; })) std::copy(seed, seed + 4, state.begin());
  const bool is_unsigned = version >= kHashLegacyUnsigned;
  uint32_t hash = 0;
  switch (version) {
    case kHashLegacy:
    case kHashLegacyUnsigned:
      hash = Legacy(name, is_unsigned);
      break;
    case kHashHalfMd4:
    case kHashHalfMd4Unsigned:
      ForEachChunk<8>(name, is_unsigned, state, HalfMd4);
      hash = state[1];
      break;
    case kHashTea:
    case kHashTeaUnsigned:
      ForEachChunk<4>(name, is_unsigned, state, Tea);
      hash = state[0];
      break;
    default:
      return std::nullopt;
  }
  hash &= ~1U;
  if (hash == kLargestHash) hash -= 2;
  return hash;
}

}  // namespace elidefs::core
