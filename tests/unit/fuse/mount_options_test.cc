#include "fuse/mount_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;

MountOptions Parse(std::string_view list) {
  MountOptions options;
  const absl::Status status = ApplyMountOptions(list, &options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

std::string ParseError(std::string_view list) {
  MountOptions options;
  const absl::Status status = ApplyMountOptions(list, &options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << list;
  return std::string(status.message());
}

TEST(MountOptionsTest, DefaultsAreThoseOfTheDesign) {
  const MountOptions options = Parse("");
  EXPECT_FALSE(options.read_only);
  EXPECT_FALSE(options.writeback_cache);
  EXPECT_TRUE(options.update_atime);
  EXPECT_EQ(options.errors, ErrorPolicy::kRemountReadOnly);
  EXPECT_EQ(options.max_threads, 4U);
}

TEST(MountOptionsTest, EveryOptionReachesTheVolume) {
  const VolumeOptions volume =
      MakeVolumeOptions(Parse("ro,noatime,commit=5,errors=continue,queues=2,write_behind_mib=128,data=ordered"));
  EXPECT_TRUE(volume.read_only);
  EXPECT_FALSE(volume.update_atime);
  EXPECT_EQ(volume.commit_interval_ms, 5000U);
  EXPECT_EQ(volume.errors, ErrorPolicy::kContinue);
  EXPECT_EQ(volume.hardware_queues, 2U);
  EXPECT_EQ(volume.write_behind_bytes, 128ULL << 20U);
  EXPECT_EQ(MakeVolumeOptions(Parse("writeback_cache,write_behind_mib=128")).write_behind_bytes, 0U);
  EXPECT_EQ(MakeVolumeOptions(Parse("errors=panic")).errors, ErrorPolicy::kPanic);
  EXPECT_EQ(MakeVolumeOptions(Parse("errors=panic,errors=remount-ro")).errors, ErrorPolicy::kRemountReadOnly);
  EXPECT_EQ(MakeVolumeOptions(Parse("commit=86400")).commit_interval_ms, 86400000U);
}

TEST(MountOptionsTest, TheLaterOptionWins) {
  EXPECT_FALSE(Parse("ro,rw").read_only);
  EXPECT_TRUE(Parse("rw,ro").read_only);
  EXPECT_FALSE(Parse("allow_other,noallow_other").allow_other);
  EXPECT_TRUE(Parse("noatime,relatime").update_atime);
}

TEST(MountOptionsTest, IgnoresWhatOnlyMountAndSystemdRead) {
  const MountOptions options = Parse(
      "defaults,nofail,_netdev,auto,noauto,user,x-systemd.automount,x-gvfs-name=a=b,user=joe,,default_permissions");
  EXPECT_TRUE(options.kernel_flags.empty());
}

TEST(MountOptionsTest, HandsKernelFlagsOn) {
  EXPECT_EQ(MakeFuseOptions(Parse("dev,nosuid,noexec"), "/dev/sda1"),
            "fsname=/dev/sda1,subtype=elidefs,default_permissions,rw,dev,nosuid,noexec");
  EXPECT_EQ(MakeFuseOptions(Parse("ro,noatime,allow_other,debug"), "/x"),
            "fsname=/x,subtype=elidefs,default_permissions,ro,allow_other,noatime,debug");
}

TEST(MountOptionsTest, EscapesTheSource) {
  EXPECT_THAT(MakeFuseOptions(MountOptions(), "/a,allow_root\\b"), HasSubstr("fsname=/a\\,allow_root\\\\b,"));
}

TEST(MountOptionsTest, RefusesWithTheOptionsName) {
  EXPECT_THAT(ParseError("ro,frobnicate"), HasSubstr("'frobnicate': unknown"));
  EXPECT_THAT(ParseError("frobnicate=1"), HasSubstr("'frobnicate=1': unknown"));
  EXPECT_THAT(ParseError("data=journal"), HasSubstr("data=ordered"));
  EXPECT_THAT(ParseError("data=writeback"), HasSubstr("data=ordered"));
  EXPECT_THAT(ParseError("errors=ignore"), HasSubstr("remount-ro, continue or panic"));
  EXPECT_THAT(ParseError("remount"), HasSubstr("unmount it"));
  EXPECT_THAT(ParseError("sync"), HasSubstr("O_SYNC"));
  EXPECT_THAT(ParseError("commit"), HasSubstr("needs a value"));
  EXPECT_THAT(ParseError("errors"), HasSubstr("needs a value"));
}

TEST(MountOptionsTest, RefusesNumbersOutOfRange) {
  for (const char* option : {"commit=0", "commit=-1", "commit=", "commit=x", "commit=86401", "max_threads=0",
                             "max_threads=257", "queues=0", "write_behind_mib=99999999999999999999"}) {
    EXPECT_THAT(ParseError(option), HasSubstr("wants a number from 1")) << option;
  }
}

}  // namespace
}  // namespace elidefs::fuse
