#include "fuse/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;

Command Parse(std::vector<std::string> arguments, bool is_root = false) {
  const absl::StatusOr<Command> command = ParseCommandLine(arguments, is_root);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? *command : Command();
}

std::string ParseError(std::vector<std::string> arguments) {
  const absl::StatusOr<Command> command = ParseCommandLine(arguments, false);
  EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(command.status().message());
}

TEST(CommandLineTest, Mount) {
  const Command command = Parse({"elidefs", "mount", "-f", "-o", "ro,commit=7", "image", "-onoatime", "dir"});
  EXPECT_EQ(command.kind, Command::Kind::kMount);
  EXPECT_TRUE(command.foreground);
  EXPECT_TRUE(command.options.read_only);
  EXPECT_FALSE(command.options.update_atime);
  EXPECT_EQ(command.options.commit_seconds, 7U);
  EXPECT_EQ(command.source, "image");
  EXPECT_EQ(command.mountpoint, "dir");
  EXPECT_FALSE(command.options.allow_other);
}

TEST(CommandLineTest, RootSharesTheMountUnlessToldOtherwise) {
  EXPECT_TRUE(Parse({"elidefs", "mount", "a", "b"}, true).options.allow_other);
  EXPECT_FALSE(Parse({"elidefs", "mount", "-o", "noallow_other", "a", "b"}, true).options.allow_other);
}

TEST(CommandLineTest, DebugStaysInTheForeground) {
  const Command command = Parse({"elidefs", "mount", "-d", "a", "b"});
  EXPECT_TRUE(command.foreground);
  EXPECT_TRUE(command.options.debug);
}

TEST(CommandLineTest, DoubleDashEndsOptions) {
  const Command command = Parse({"elidefs", "mount", "--", "-f", "-o"});
  EXPECT_EQ(command.source, "-f");
  EXPECT_EQ(command.mountpoint, "-o");
}

TEST(CommandLineTest, ClientCommands) {
  EXPECT_FALSE(Parse({"elidefs", "stat", "m"}).json);
  const Command stat = Parse({"elidefs", "stat", "m", "--json"});
  EXPECT_EQ(stat.kind, Command::Kind::kStat);
  EXPECT_TRUE(stat.json);
  EXPECT_EQ(stat.mountpoint, "m");
  EXPECT_EQ(Parse({"elidefs", "unmount", "m"}).kind, Command::Kind::kUnmount);
  EXPECT_EQ(Parse({"elidefs", "umount", "m"}).kind, Command::Kind::kUnmount);
  EXPECT_EQ(Parse({"elidefs", "flush", "m"}).kind, Command::Kind::kFlush);
}

TEST(CommandLineTest, HelpAndVersion) {
  EXPECT_EQ(Parse({"elidefs", "--version"}).kind, Command::Kind::kVersion);
  EXPECT_EQ(Parse({"elidefs", "--help"}).kind, Command::Kind::kHelp);
  EXPECT_EQ(Parse({"elidefs", "help", "mount"}).help_topic, "mount");
  const Command command = Parse({"elidefs", "stat", "--help"});
  EXPECT_EQ(command.kind, Command::Kind::kHelp);
  EXPECT_EQ(command.help_topic, "stat");
  EXPECT_THAT(HelpText("mount"), HasSubstr("write_behind_mib"));
  EXPECT_THAT(HelpText(""), HasSubstr("unmount MOUNTPOINT"));
}

TEST(CommandLineTest, MountHelperOfMount8) {
  const Command command =
      Parse({"/sbin/mount.elidefs", "/dev/a", "/m", "-n", "-sv", "-o", "rw,nofail", "-t", "elidefs"});
  EXPECT_EQ(command.kind, Command::Kind::kMount);
  EXPECT_FALSE(command.foreground);
  EXPECT_EQ(command.source, "/dev/a");
  EXPECT_EQ(command.mountpoint, "/m");
  EXPECT_TRUE(Parse({"mount.elidefs", "/dev/a", "/m", "-f"}).fake);
}

TEST(CommandLineTest, UsageErrors) {
  EXPECT_THAT(ParseError({"elidefs"}), HasSubstr("no command"));
  EXPECT_THAT(ParseError({"elidefs", "frob"}), HasSubstr("unknown command 'frob'"));
  EXPECT_THAT(ParseError({"elidefs", "help", "frob"}), HasSubstr("unknown command 'frob'"));
  EXPECT_THAT(ParseError({"elidefs", "mount", "a"}), HasSubstr("a SOURCE and a MOUNTPOINT"));
  EXPECT_THAT(ParseError({"elidefs", "mount", "a", "b", "c"}), HasSubstr("'c' is too much"));
  EXPECT_THAT(ParseError({"elidefs", "mount", "--json", "a", "b"}), HasSubstr("unknown option '--json' for 'mount'"));
  EXPECT_THAT(ParseError({"elidefs", "stat", "-f", "b"}), HasSubstr("unknown option '-f' for 'stat'"));
  EXPECT_THAT(ParseError({"elidefs", "stat"}), HasSubstr("one MOUNTPOINT"));
  EXPECT_THAT(ParseError({"elidefs", "stat", ""}), HasSubstr("empty"));
  EXPECT_THAT(ParseError({"elidefs", "mount", "a", "b", "-o"}), HasSubstr("needs a value"));
  EXPECT_THAT(ParseError({"elidefs", "mount", "-o", "data=journal", "a", "b"}), HasSubstr("data=journal"));
}

}  // namespace
}  // namespace elidefs::fuse
