// The model itself: what it allows, and that it does not allow more.
#include "tests/simulator/model.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/simulator/workload.h"

namespace elidefs::simulator {
namespace {

Operation Create(NodeId node, std::string name) {
  return {.kind = OperationKind::kCreate, .node = node, .name = std::move(name)};
}
Operation Write(uint64_t offset_bytes, uint64_t length_bytes, uint64_t pattern) {
  return {.kind = OperationKind::kWrite,
          .node = 1,
          .offset_bytes = offset_bytes,
          .length_bytes = length_bytes,
          .pattern = pattern};
}
Operation DataSync() {
  return {.kind = OperationKind::kDataSync, .node = 1};
}

ObservedNode FileOf(std::vector<uint8_t> content) {
  ObservedNode node;
  node.inode = 20;
  node.links = 1;
  node.size_bytes = content.size();
  node.content = std::move(content);
  return node;
}

bool Allowed(const History& history, const ObservedTree& tree, size_t ended) {
  return history.Explain(tree, {.begun = ended, .ended = ended}).empty();
}

TEST(Model, NamesAreAPrefixOfAtLeastWhatWasSynced) {
  const History history({Create(1, "a"), Create(2, "b"), {.kind = OperationKind::kSync, .node = 1}, Create(3, "c")});
  ObservedTree tree;
  EXPECT_TRUE(Allowed(history, tree, 2));   // nothing was synced
  EXPECT_FALSE(Allowed(history, tree, 3));  // the first file was
  tree["a"] = FileOf({});
  EXPECT_TRUE(Allowed(history, tree, 4));
  tree["c"] = FileOf({});
  tree["c"].inode = 21;
  EXPECT_FALSE(Allowed(history, tree, 4)) << "the third file cannot be there without the second";
}

TEST(Model, SyncedContentMustBeThere) {
  const History history({Create(1, "a"), Write(0, 1024, 1), DataSync(), Write(0, 1024, 2)});
  const std::vector<uint8_t> old_content = PatternBytes(1, 0, 1024);
  std::vector<uint8_t> torn = PatternBytes(2, 0, 1024);
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(old_content)}}, 4));
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(torn)}}, 4));
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(torn)}}, 3)) << "a write that had not begun";
  std::copy(old_content.begin() + 512, old_content.end(), torn.begin() + 512);
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(torn)}}, 4)) << "torn between sectors";
  torn[100] ^= 1U;
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(torn)}}, 4)) << "torn within a sector";
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(std::vector<uint8_t>(1024, 0))}}, 4));
  EXPECT_FALSE(Allowed(history, {{"a", FileOf({})}}, 4)) << "the size was synced";
}

TEST(Model, UnsyncedAppendIsNeverStale) {
  const History history({Create(1, "a"), Write(0, 2000, 1)});
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(std::vector<uint8_t>(2000, 0))}}, 2));
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(PatternBytes(1, 0, 2000))}}, 2));
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(std::vector<uint8_t>(2000, 0xDB))}}, 2));
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(std::vector<uint8_t>(1000, 0))}}, 2)) << "no call made this size";
}

TEST(Model, UnsyncedWritesMayOvertakeEachOther) {
  const History history(
      {Create(1, "a"), Write(0, 512, 1), DataSync(), Write(2048, 512, 2), Write(1024, 512, 3), Write(0, 256, 4)});
  std::vector<uint8_t> content = PatternBytes(1, 0, 512);
  content.resize(1536);
  const std::vector<uint8_t> later = PatternBytes(3, 1024, 512);
  std::copy(later.begin(), later.end(), content.begin() + 1024);
  EXPECT_TRUE(Allowed(history, {{"a", FileOf(content)}}, 6)) << "the second write without the first";
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(content)}}, 4)) << "before it had begun";
  content.resize(256);
  EXPECT_FALSE(Allowed(history, {{"a", FileOf(content)}}, 6)) << "a write never makes a file shorter";
}

TEST(Model, TruncateIsOrderedWithNames) {
  const History history({Create(1, "a"),
                         Write(0, 1024, 1),
                         DataSync(),
                         {.kind = OperationKind::kTruncate, .node = 1, .length_bytes = 100},
                         Create(2, "b")});
  ObservedTree tree{{"a", FileOf(PatternBytes(1, 0, 1024))}};
  EXPECT_TRUE(Allowed(history, tree, 5));
  tree["b"] = FileOf({});
  tree["b"].inode = 21;
  EXPECT_FALSE(Allowed(history, tree, 5)) << "the later name is there, so the truncate must be";
  tree["a"] = FileOf(PatternBytes(1, 0, 100));
  EXPECT_TRUE(Allowed(history, tree, 5));
}

TEST(Model, LinksAreOneFile) {
  const History history({Create(1, "a"), {.kind = OperationKind::kLink, .node = 1, .name = "b"}});
  ObservedTree tree{{"a", FileOf({})}, {"b", FileOf({})}};
  EXPECT_FALSE(Allowed(history, tree, 2)) << "link counts";
  tree["a"].links = tree["b"].links = 2;
  EXPECT_TRUE(Allowed(history, tree, 2));
  tree["b"].inode = 99;
  EXPECT_FALSE(Allowed(history, tree, 2)) << "two files";
}

TEST(Model, WorkloadsAreRepeatableAndCoverEveryCall) {
  const std::vector<Operation> a = GenerateWorkload({.seed = 5, .operations = 400});
  const std::vector<Operation> b = GenerateWorkload({.seed = 5, .operations = 400});
  ASSERT_EQ(a.size(), b.size());
  std::set<OperationKind> kinds;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ToString(), b[i].ToString());
    kinds.insert(a[i].kind);
  }
  EXPECT_EQ(kinds.size(), 12U);
}

}  // namespace
}  // namespace elidefs::simulator
