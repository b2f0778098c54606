#include "core/ondisk/features.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/error.h"

namespace elidefs::core {
namespace {

struct FeatureRule {
  uint32_t mask;
  const char* name;
  const char* remedy;
};

constexpr const char* kUseKernel = "mount it with the kernel's ext4 driver";
constexpr const char* kReadOnly = "mount it read-only";

constexpr uint32_t kAcceptedIncompat =
    kIncompatFiletype | kIncompatRecover | kIncompatExtents | kIncompat64Bit | kIncompatFlexBg | kIncompatCsumSeed;
constexpr FeatureRule kRefusedIncompat[] = {
    {kIncompatCompression, "compression", kUseKernel},
    {kIncompatJournalDev, "journal_dev", "this is another volume's external journal, mount that volume"},
    {kIncompatMetaBg, "meta_bg", kUseKernel},
    {kIncompatMmp, "mmp", "tune2fs -O ^mmp"},
    {kIncompatEaInode, "ea_inode", kUseKernel},
    {kIncompatDirData, "dirdata", kUseKernel},
    {kIncompatLargeDir, "large_dir", kUseKernel},
    {kIncompatInlineData, "inline_data", kUseKernel},
    {kIncompatEncrypt, "encrypt", kUseKernel},
    {kIncompatCasefold, "casefold", kUseKernel},
};

// uninit_bg is accepted beside metadata_csum, which replaces its checksum.
constexpr uint32_t kAcceptedRoCompat = kRoCompatSparseSuper | kRoCompatLargeFile | kRoCompatHugeFile |
                                       kRoCompatDirNlink | kRoCompatExtraIsize | kRoCompatMetadataCsum;
constexpr FeatureRule kReadOnlyRoCompat[] = {
    {kRoCompatBigalloc, "bigalloc", kReadOnly},
    {kRoCompatQuota, "quota", "mount it read-only, or tune2fs -O ^quota"},
    {kRoCompatProject, "project", "mount it read-only, or tune2fs -O ^project"},
    {kRoCompatVerity, "verity", kReadOnly},
    {kRoCompatSharedBlocks, "shared_blocks", "mount it read-only, or e2fsck -E unshare_blocks"},
    {kRoCompatOrphanPresent, "orphan_present",
     "the orphan file holds unfinished deletions: run e2fsck -p, or mount it read-only"},
    {kRoCompatReadonly, "read-only", "mount it read-only, or tune2fs -O ^read-only"},
    {kRoCompatGdtCsum, "uninit_bg", "mount it read-only, or tune2fs -O metadata_csum"},
};

// Describes the bits of `refused`, known by `rules` or not.
void Describe(uint32_t refused, absl::Span<const FeatureRule> rules, const char* set_name, const char* unknown_remedy,
              std::vector<std::string>* findings) {
  for (const FeatureRule& rule : rules) {
    if ((refused & rule.mask) == 0) continue;
    findings->push_back(absl::StrCat(rule.name, " (", rule.remedy, ")"));
    refused &= ~rule.mask;
  }
  if (refused == 0) return;
  findings->push_back(absl::StrCat("unknown ", set_name, " bits 0x", absl::Hex(refused), " (", unknown_remedy, ")"));
}

// What the volume must have before it is written, and what forbids writing though it is not an RO_COMPAT bit.
void DescribeReadWrite(const SuperBlock& super_block, std::vector<std::string>* findings) {
  const uint32_t compat = super_block.s_feature_compat;
  const uint32_t ro_compat = super_block.s_feature_ro_compat;
  uint32_t accepted = kAcceptedRoCompat;
  if ((ro_compat & kRoCompatMetadataCsum) != 0) accepted |= kRoCompatGdtCsum;
  Describe(ro_compat & ~accepted, kReadOnlyRoCompat, "RO_COMPAT", kReadOnly, findings);
  if ((compat & kCompatSparseSuper2) != 0) findings->push_back(absl::StrCat("sparse_super2 (", kReadOnly, ")"));
  if ((compat & kCompatHasJournal) == 0) {
    findings->push_back("no has_journal (mount it read-only, or tune2fs -O has_journal)");
  }
  // New files are always extent-mapped: without the feature they would be damage.
  if ((super_block.s_feature_incompat & kIncompatExtents) == 0) {
    findings->push_back("no extent (mount it read-only, or tune2fs -O extent)");
  }
}

}  // namespace

absl::Status CheckFeatures(const SuperBlock& super_block, bool read_write) {
  std::vector<std::string> findings;
  Describe(super_block.s_feature_incompat & ~kAcceptedIncompat, kRefusedIncompat, "INCOMPAT",
           "written by a newer system, mount it there", &findings);
  if ((super_block.s_feature_compat & kCompatHasJournal) != 0 && super_block.s_journal_dev != 0) {
    findings.push_back("external journal (tune2fs -O ^has_journal, then tune2fs -O has_journal)");
  }
  if (!findings.empty()) {
    return ErrnoError(EOPNOTSUPP, absl::StrCat("the volume has features that elidefs does not support: ",
                                               absl::StrJoin(findings, "; ")));
  }
  if (!read_write) return absl::OkStatus();
  DescribeReadWrite(super_block, &findings);
  if (findings.empty()) return absl::OkStatus();
  return ErrnoError(
      EOPNOTSUPP, absl::StrCat("the volume has features that elidefs does not write: ", absl::StrJoin(findings, "; ")));
}

}  // namespace elidefs::core
