#include "tests/simulator/exhaustive.h"

#include <functional>
#include <utility>

namespace elidefs::simulator {
namespace {

// Nodes of the small tree. What a sequence creates gets numbers from kFirstNew on.
constexpr NodeId kFoo = 1;     // file /foo, also /foo.link
constexpr NodeId kFolder = 2;  // directory /A
constexpr NodeId kBar = 3;     // file /A/bar
constexpr NodeId kEmpty = 4;   // directory /B
constexpr NodeId kFirstNew = 10;
constexpr uint64_t kBlock = 1024;

// Makes a call for the given place in a sequence on the given tree. Whether it is legal there is for the tree to say.
using Template = std::function<Operation(const TreeModel& tree, uint32_t position)>;

Template New(OperationKind kind, NodeId directory, const std::string& name, const std::string& target = "") {
  return [=](const TreeModel& /*tree*/, uint32_t position) {
    return Operation{
        .kind = kind, .node = kFirstNew + position, .directory = directory, .name = name, .target = target};
  };
}

// Calls that are the same on every tree.
Template Fixed(Operation operation) {
  return [=](const TreeModel& /*tree*/, uint32_t /*position*/) { return operation; };
}
Template Link(NodeId node, NodeId directory, const std::string& name) {
  return Fixed({.kind = OperationKind::kLink, .node = node, .directory = directory, .name = name});
}
Template Remove(OperationKind kind, NodeId directory, const std::string& name) {
  return Fixed({.kind = kind, .directory = directory, .name = name});
}
Template Rename(NodeId from, const std::string& name, NodeId to, const std::string& new_name) {
  return Fixed(
      {.kind = OperationKind::kRename, .directory = from, .name = name, .new_directory = to, .new_name = new_name});
}
Template Truncate(NodeId file, uint64_t size_bytes) {
  return Fixed({.kind = OperationKind::kTruncate, .node = file, .length_bytes = size_bytes});
}
Template On(OperationKind kind, NodeId node) {
  return Fixed({.kind = kind, .node = node});
}

// `offset_bytes` counts from the end of file if `from_end`.
Template Write(NodeId file, bool from_end, uint64_t offset_bytes, uint64_t length_bytes) {
  return [=](const TreeModel& tree, uint32_t position) {
    Operation operation{.kind = OperationKind::kWrite,
                        .node = file,
                        .offset_bytes = offset_bytes,
                        .length_bytes = length_bytes,
                        .pattern = 100 + position};
    const auto found = tree.nodes().find(file);
    if (from_end && found != tree.nodes().end()) operation.offset_bytes += found->second.content.size();
    return operation;
  };
}

const std::vector<Template>& Alphabet() {
  using Kind = OperationKind;
  static const auto* const kAlphabet = new std::vector<Template>{
      // Changes of content and size: appended, overwritten whole and torn, across a hole, shorter in and between
      // blocks,
      // longer.
      Write(kFoo, true, 0, 3 * kBlock), Write(kFoo, false, kBlock, kBlock), Write(kFoo, false, 100, 1500),
      Write(kFoo, true, 5 * kBlock, 300), Write(kBar, true, 0, kBlock), Write(kBar, false, 0, 700), Truncate(kFoo, 0),
      Truncate(kFoo, 1000), Truncate(kFoo, 2 * kBlock), Truncate(kFoo, 9000), Truncate(kBar, 1),
      // Names.
      New(Kind::kCreate, kBaseNode, "new"), New(Kind::kCreate, kFolder, "new"),
      New(Kind::kMakeDirectory, kBaseNode, "D"), New(Kind::kMakeDirectory, kFolder, "D"),
      New(Kind::kSymlink, kBaseNode, "fast", "short"), New(Kind::kSymlink, kFolder, "slow", std::string(200, 's')),
      Link(kFoo, kBaseNode, "again"), Link(kFoo, kFolder, "foo"), Link(kBar, kBaseNode, "bar"),
      Remove(Kind::kUnlink, kBaseNode, "foo"), Remove(Kind::kUnlink, kBaseNode, "foo.link"),
      Remove(Kind::kUnlink, kFolder, "bar"), Remove(Kind::kRemoveDirectory, kBaseNode, "B"),
      Remove(Kind::kRemoveDirectory, kBaseNode, "A"), Rename(kBaseNode, "foo", kBaseNode, "moved"),
      Rename(kBaseNode, "foo", kFolder, "foo"), Rename(kBaseNode, "foo", kFolder, "bar"),
      Rename(kFolder, "bar", kBaseNode, "foo"), Rename(kBaseNode, "A", kBaseNode, "B"),
      Rename(kBaseNode, "A", kEmpty, "A"), Rename(kBaseNode, "B", kFolder, "B"), Rename(kFolder, "bar", kEmpty, "bar"),
      // What makes things durable, and what ends an open description.
      On(Kind::kSync, kFoo), On(Kind::kDataSync, kFoo), On(Kind::kSync, kBar), On(Kind::kDataSync, kBar),
      On(Kind::kSync, kBaseNode), On(Kind::kSync, kFolder), On(Kind::kSync, kEmpty), On(Kind::kClose, kFoo),
      On(Kind::kClose, kBar)};
  return *kAlphabet;
}

}  // namespace

std::vector<Operation> SmallTree() {
  using Kind = OperationKind;
  return {
      {.kind = Kind::kCreate, .node = kFoo, .name = "foo"},
      {.kind = Kind::kWrite, .node = kFoo, .offset_bytes = 0, .length_bytes = 2 * kBlock + 512, .pattern = 1},
      {.kind = Kind::kLink, .node = kFoo, .name = "foo.link"},
      {.kind = Kind::kMakeDirectory, .node = kFolder, .name = "A"},
      {.kind = Kind::kCreate, .node = kBar, .directory = kFolder, .name = "bar"},
      {.kind = Kind::kWrite, .node = kBar, .offset_bytes = 0, .length_bytes = kBlock + 100, .pattern = 2},
      {.kind = Kind::kMakeDirectory, .node = kEmpty, .name = "B"},
      {.kind = Kind::kSync, .node = kFoo},
      {.kind = Kind::kSync, .node = kBar},
      {.kind = Kind::kSync, .node = kBaseNode},
      {.kind = Kind::kSync, .node = kFolder},
      {.kind = Kind::kSync, .node = kEmpty},
  };
}

uint64_t AlphabetSize() {
  return Alphabet().size();
}

uint64_t SequenceCount(uint32_t length) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < length; ++i) count *= AlphabetSize();
  return count;
}

std::optional<std::vector<Operation>> Sequence(uint32_t length, uint64_t number) {
  static const auto* const kStart = [] {
    auto* tree = new TreeModel;
    for (const Operation& operation : SmallTree()) tree->Apply(operation);
    return tree;
  }();
  TreeModel tree = *kStart;
  std::vector<Operation> operations;
  for (uint32_t position = 0; position < length; ++position) {
    Operation operation = Alphabet()[number % AlphabetSize()](tree, position);
    if (!tree.IsLegal(operation)) return std::nullopt;
    number /= AlphabetSize();
    tree.Apply(operation);
    operations.push_back(std::move(operation));
  }
  return operations;
}

}  // namespace elidefs::simulator
