// Hashes of names against debugfs; it knows the signed forms only, so the unsigned ones are compared where the two
// agree and by reading directories that the kernel made (kernel_directory_test.cc).
#include "core/directory/directory_hash.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/support/test_image.h"

namespace elidefs::core {
namespace {

constexpr uint32_t kSeed[4] = {0x33221100U, 0x77665544U, 0xBBAA9988U, 0xFFEEDDCCU};
constexpr char kSeedUuid[] = "00112233-4455-6677-8899-aabbccddeeff";

std::vector<std::string> RandomNames(bool ascii) {
  std::mt19937 random(42);
  std::vector<std::string> names;
  for (uint32_t length = 1; length <= 255; length += length < 70 ? 1 : 9) {
    std::string name(length, 'x');
    for (char& character : name) {
      // Above 0xA0 in the other case: each of these bytes is negative as a signed char.
      character = static_cast<char>(ascii ? 'a' + random() % 26 : 0xA1 + random() % 90);
    }
    names.push_back(std::move(name));
  }
  return names;
}

uint32_t HashByDebugfs(const std::string& output_line) {
  const size_t at = output_line.find(" is 0x");
  return at == std::string::npos ? 1 : static_cast<uint32_t>(std::strtoul(output_line.c_str() + at + 4, nullptr, 16));
}

TEST(DirectoryHash, SignedFormsMatchDebugfs) {
  const char* const kAlgorithms[] = {"legacy", "half_md4", "tea"};
  for (const bool ascii : {true, false}) {
    const std::vector<std::string> names = RandomNames(ascii);
    std::string commands;
    for (const char* algorithm : kAlgorithms) {
      for (const std::string& name : names) {
        commands += absl::StrCat("dx_hash -h ", algorithm, " -s ", kSeedUuid, " ", name, "\n");
      }
    }
    const test_support::TempFile file(std::vector<uint8_t>(commands.begin(), commands.end()));
    std::istringstream output(test_support::MustRun("debugfs -f " + file.path()));
    for (uint8_t version = kHashLegacy; version <= kHashTea; ++version) {
      for (const std::string& name : names) {
        std::string line;
        do {
          ASSERT_TRUE(std::getline(output, line));
        } while (line.find("Hash of") != 0);
        EXPECT_EQ(DirectoryHash(name, version, kSeed), HashByDebugfs(line)) << line;
        const auto as_unsigned = DirectoryHash(name, version + kHashLegacyUnsigned, kSeed);
        EXPECT_EQ(as_unsigned == DirectoryHash(name, version, kSeed), ascii) << line;
      }
    }
  }
}

TEST(DirectoryHash, UnknownVersionsHaveNoHash) {
  EXPECT_FALSE(DirectoryHash("name", 6, kSeed).has_value());
  EXPECT_FALSE(DirectoryHash("name", 255, kSeed).has_value());
}

TEST(DirectoryHash, AnEmptySeedIsMd4sInitialState) {
  constexpr uint32_t kNone[4] = {};
  constexpr uint32_t kInitial[4] = {0x67452301U, 0xEFCDAB89U, 0x98BADCFEU, 0x10325476U};
  EXPECT_EQ(DirectoryHash("name", kHashHalfMd4, kNone), DirectoryHash("name", kHashHalfMd4, kInitial));
  EXPECT_NE(DirectoryHash("name", kHashHalfMd4, kNone), DirectoryHash("name", kHashHalfMd4, kSeed));
}

}  // namespace
}  // namespace elidefs::core
