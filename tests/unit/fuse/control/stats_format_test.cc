#include "fuse/control/stats_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fuse/control/json_writer.h"

namespace elidefs::fuse {
namespace {

using ::testing::HasSubstr;

TEST(JsonWriterTest, Nests) {
  JsonWriter json;
  json.BeginObject();
  json.Number("a", 18446744073709551615ULL);
  json.BeginArray("empty");
  json.End();
  json.BeginArray("list");
  json.BeginObject();
  json.Boolean("b", true);
  json.End();
  json.End();
  json.End();
  EXPECT_EQ(
      json.text(),
      "{\n  \"a\": 18446744073709551615,\n  \"empty\": [],\n  \"list\": [\n    {\n      \"b\": true\n    }\n  ]\n}\n");
}

std::string Quoted(std::string_view value) {
  JsonWriter json;
  json.String("", value);
  return json.text();
}

TEST(JsonWriterTest, EscapesStrings) {
  EXPECT_EQ(Quoted("a\"b\\c\n\x01"), R"("a\"b\\c\u000a\u0001")");
  EXPECT_EQ(Quoted("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

TEST(JsonWriterTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(Quoted("x\xff"), R"("x\ufffd")");
  EXPECT_EQ(Quoted("\xc3"), R"("\ufffd")");
  EXPECT_EQ(Quoted("\xc0\xaf"), R"("\ufffd\ufffd")");
  EXPECT_EQ(Quoted("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");
}

VolumeStats SomeStats() {
  VolumeStats stats;
  stats.syncs.fdatasync_calls = 60;
  stats.syncs.fsync_calls = 40;
  stats.syncs.elided = 25;
  stats.flushes.requested = 10;
  stats.flushes.issued = 3;
  stats.flushes.device_has_volatile_cache = true;
  stats.commits.log_blocks = 1024;
  stats.commits.log_blocks_used = 256;
  stats.queues.resize(2);
  stats.queues[1].flush_index = 7;
  stats.written_bytes = 3 << 20U;
  stats.read_only = true;
  stats.read_only_reason = "journal aborted: \"EIO\"";
  return stats;
}

TEST(StatsFormatTest, JsonMirrorsTheHeader) {
  const std::string json = FormatStatsJson(SomeStats(), {"/dev/loop0", "/mnt", 42, true});
  for (const char* part :
       {"\"source\": \"/dev/loop0\"", "\"pid\": 42", "\"writeback_cache\": true", "\"read_only\": true",
        R"("read_only_reason": "journal aborted: \"EIO\"")", "\"fdatasync_calls\": 60", "\"issued\": 3",
        "\"device_has_volatile_cache\": true", "\"log_blocks_used\": 256", "\"flush_index\": 7",
        "\"written_bytes\": 3145728", "\"durable_ticket\": 0", "\"leaf_failed\": false"}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

TEST(StatsFormatTest, TextForPeople) {
  const std::string text = FormatStatsText(SomeStats(), {"/dev/loop0", "/mnt", 42, false});
  EXPECT_THAT(text, HasSubstr("/dev/loop0 on /mnt (process 42)"));
  EXPECT_THAT(text, HasSubstr("read-only: journal aborted: \"EIO\", write-behind"));
  EXPECT_THAT(text, HasSubstr("  elided      25 (25.0%)"));
  EXPECT_THAT(text, HasSubstr("3 issued, 0 failed; of 10 needs 10 caused one, 0 joined one, 0 were met"));
  EXPECT_THAT(text, HasSubstr("256 of 1024 blocks used (25.0%)"));
  EXPECT_THAT(text, HasSubstr("flush index 7 (in flight)"));
  EXPECT_THAT(text, HasSubstr("3.0 MiB written"));
}

TEST(StatsFormatTest, NothingHappenedYet) {
  const std::string text = FormatStatsText(VolumeStats(), {"a", "b", 1, false});
  EXPECT_THAT(text, HasSubstr("  elided      0\n"));
}

}  // namespace
}  // namespace elidefs::fuse
