// The mke2fs options that format tests run over: block sizes, descriptor sizes, checksums, flex groups, inode sizes.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace elidefs::test_support {

struct ImageKind {
  const char* name;
  const char* options;
};

inline constexpr ImageKind kImageKinds[] = {
    {"default_1k", "-t ext4 -b 1024"},
    {"default_2k", "-t ext4 -b 2048"},
    {"default_4k", "-t ext4 -b 4096"},
    {"small_descriptors", "-t ext4 -b 1024 -O ^64bit"},
    {"no_checksums", "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg"},
    {"no_checksums_small_descriptors", "-t ext4 -b 2048 -O ^metadata_csum,^64bit,^uninit_bg"},
    {"checksum_seed", "-t ext4 -b 1024 -O metadata_csum_seed"},
    {"no_flex", "-t ext4 -b 1024 -O ^flex_bg"},
    {"no_flex_no_resize", "-t ext4 -b 1024 -O ^flex_bg,^resize_inode,^sparse_super"},
    {"small_inodes", "-t ext4 -b 1024 -I 128"},
    {"large_inodes", "-t ext4 -b 4096 -I 512"},
    {"orphan_file", "-t ext4 -b 1024 -O orphan_file"},
    {"lazy", "-t ext4 -b 1024 -E lazy_itable_init=1,lazy_journal_init=0"},
    {"small_groups", "-t ext4 -b 1024 -g 1024 -G 4"},
};

inline void PrintTo(const ImageKind& kind, std::ostream* out) {
  *out << kind.name << " (" << kind.options << ")";
}
inline std::string KindName(const testing::TestParamInfo<ImageKind>& info) {
  return info.param.name;
}

}  // namespace elidefs::test_support
