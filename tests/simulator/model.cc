#include "tests/simulator/model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mix.h"

namespace elidefs::simulator {
namespace {

// One line a name, in order of path: kind, links, symlink target, and for files the first path of the same inode.
class NamesText {
 public:
  void Add(const std::string& path, NodeKind kind, uint64_t links, const std::string& target, uint64_t identity) {
    const std::string& first = first_path_.emplace(identity, path).first->second;
    absl::StrAppend(&text_, path, " ",
                    kind == NodeKind::kFile        ? "file"
                    : kind == NodeKind::kDirectory ? "dir"
                                                   : "symlink",
                    " links=", links, kind == NodeKind::kSymlink ? absl::StrCat(" -> ", target) : "",
                    kind == NodeKind::kFile && first != path ? absl::StrCat(" same as ", first) : "", "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::map<uint64_t, std::string> first_path_;
  std::string text_;
};

// The first line in which two texts differ, for messages.
std::string FirstDifference(const std::string& expected, const std::string& found) {
  std::set<std::string> lines[2];
  const std::string* texts[2] = {&expected, &found};
  for (int i = 0; i < 2; ++i) {
    for (size_t at = 0; at < texts[i]->size();) {
      const size_t end = texts[i]->find('\n', at);
      lines[i].insert(texts[i]->substr(at, end - at));
      at = end + 1;
    }
  }
  std::string result;
  for (const std::string& line : lines[0]) {
    if (lines[1].count(line) == 0) absl::StrAppend(&result, "\n    expected: ", line);
  }
  for (const std::string& line : lines[1]) {
    if (lines[0].count(line) == 0) absl::StrAppend(&result, "\n    found:    ", line);
  }
  return result;
}

}  // namespace

std::string Operation::ToString() const {
  switch (kind) {
    case OperationKind::kCreate:
      return absl::StrCat("create ", directory, "/", name, " = ", node);
    case OperationKind::kMakeDirectory:
      return absl::StrCat("mkdir ", directory, "/", name, " = ", node);
    case OperationKind::kSymlink:
      return absl::StrCat("symlink ", directory, "/", name, " = ", node);
    case OperationKind::kLink:
      return absl::StrCat("link ", node, " ", directory, "/", name);
    case OperationKind::kUnlink:
      return absl::StrCat("unlink ", directory, "/", name);
    case OperationKind::kRemoveDirectory:
      return absl::StrCat("rmdir ", directory, "/", name);
    case OperationKind::kRename:
      return absl::StrCat("rename ", directory, "/", name, " ", new_directory, "/", new_name);
    case OperationKind::kWrite:
      return absl::StrCat("write ", node, " at ", offset_bytes, " length ", length_bytes);
    case OperationKind::kTruncate:
      return absl::StrCat("truncate ", node, " to ", length_bytes);
    case OperationKind::kClose:
      return absl::StrCat("close ", node);
    case OperationKind::kSync:
      return absl::StrCat("fsync ", node);
    case OperationKind::kDataSync:
      return absl::StrCat("fdatasync ", node);
  }
  return "?";
}

std::vector<uint8_t> PatternBytes(uint64_t pattern, uint64_t offset_bytes, uint64_t length_bytes) {
  std::vector<uint8_t> bytes(length_bytes);
  for (uint64_t at = 0; at < length_bytes;) {
    const uint64_t word_index = (offset_bytes + at) / 8;
    const uint64_t word =
        MixBits(pattern ^ MixBits(word_index)) | 0x0101010101010101ULL;  // never zero: zeroes mean a hole
    const uint64_t skip = (offset_bytes + at) % 8;
    const uint64_t count = std::min<uint64_t>(8 - skip, length_bytes - at);
    std::memcpy(bytes.data() + at, reinterpret_cast<const uint8_t*>(&word) + skip, count);
    at += count;
  }
  return bytes;
}

TreeModel::TreeModel() {
  nodes_[kBaseNode].kind = NodeKind::kDirectory;
  nodes_[kBaseNode].links = 2;
}

NodeId TreeModel::Child(NodeId directory, const std::string& name) const {
  const auto& children = nodes_.at(directory).children;
  const auto found = children.find(name);
  return found == children.end() ? 0 : found->second;
}

bool TreeModel::IsBelow(NodeId node, NodeId ancestor) const {
  while (node != ancestor && node != kBaseNode) node = nodes_.at(node).parent;
  return node == ancestor;
}

uint64_t TreeModel::total_bytes() const {
  uint64_t total = 0;
  for (const auto& [id, node] : nodes_) total += node.content.size();
  return total;
}

void TreeModel::Attach(NodeId directory, const std::string& name, NodeId node) {
  nodes_.at(directory).children[name] = node;
  if (nodes_[node].kind == NodeKind::kDirectory) {
    nodes_[node].parent = directory;
    ++nodes_.at(directory).links;
  }
}

void TreeModel::Detach(NodeId directory, const std::string& name) {
  const NodeId node = Child(directory, name);
  nodes_.at(directory).children.erase(name);
  if (nodes_.at(node).kind == NodeKind::kDirectory) --nodes_.at(directory).links;
}

bool TreeModel::IsLegal(const Operation& operation) const {
  const auto is_directory = [this](NodeId node) {
    const auto found = nodes_.find(node);
    return found != nodes_.end() && found->second.kind == NodeKind::kDirectory;
  };
  const NodeId child = is_directory(operation.directory) ? Child(operation.directory, operation.name) : 0;
  switch (operation.kind) {
    case OperationKind::kCreate:
    case OperationKind::kMakeDirectory:
    case OperationKind::kSymlink:
      return is_directory(operation.directory) && child == 0;
    case OperationKind::kLink:
      return nodes_.count(operation.node) != 0 && is_directory(operation.directory) && child == 0;
    case OperationKind::kUnlink:
      return child != 0 && !is_directory(child);
    case OperationKind::kRemoveDirectory:
      return child != 0 && is_directory(child) && nodes_.at(child).children.empty();
    case OperationKind::kRename: {
      if (child == 0 || !is_directory(operation.new_directory)) return false;
      if (is_directory(child) && IsBelow(operation.new_directory, child)) return false;
      const NodeId replaced = Child(operation.new_directory, operation.new_name);
      return replaced == 0 || (replaced != child && is_directory(replaced) == is_directory(child) &&
                               nodes_.at(replaced).children.empty());
    }
    case OperationKind::kWrite:
    case OperationKind::kTruncate:
    case OperationKind::kClose:
    case OperationKind::kSync:
    case OperationKind::kDataSync:
      return nodes_.count(operation.node) != 0;
  }
  return false;
}

void TreeModel::Apply(const Operation& operation) {
  const auto drop_link = [this](NodeId node) {
    Node& entry = nodes_.at(node);
    if (entry.kind == NodeKind::kDirectory || --entry.links == 0) nodes_.erase(node);
  };
  switch (operation.kind) {
    case OperationKind::kCreate:
    case OperationKind::kMakeDirectory:
    case OperationKind::kSymlink: {
      Node& node = nodes_[operation.node];
      node.kind = operation.kind == OperationKind::kCreate          ? NodeKind::kFile
                  : operation.kind == OperationKind::kMakeDirectory ? NodeKind::kDirectory
                                                                    : NodeKind::kSymlink;
      node.links = operation.kind == OperationKind::kMakeDirectory ? 2 : 1;
      node.target = operation.target;
      Attach(operation.directory, operation.name, operation.node);
      break;
    }
    case OperationKind::kLink:
      ++nodes_.at(operation.node).links;
      Attach(operation.directory, operation.name, operation.node);
      break;
    case OperationKind::kUnlink:
    case OperationKind::kRemoveDirectory: {
      const NodeId node = Child(operation.directory, operation.name);
      Detach(operation.directory, operation.name);
      drop_link(node);
      break;
    }
    case OperationKind::kRename: {
      const NodeId node = Child(operation.directory, operation.name);
      const NodeId replaced = Child(operation.new_directory, operation.new_name);
      if (replaced == node) break;  // two names of one file: POSIX leaves both
      if (replaced != 0) {
        Detach(operation.new_directory, operation.new_name);
        drop_link(replaced);
      }
      Detach(operation.directory, operation.name);
      Attach(operation.new_directory, operation.new_name, node);
      break;
    }
    case OperationKind::kWrite: {
      const auto found = nodes_.find(operation.node);
      if (found == nodes_.end()) break;  // unlinked and still open
      std::vector<uint8_t>& content = found->second.content;
      const uint64_t end = operation.offset_bytes + operation.length_bytes;
      if (content.size() < end) content.resize(end, 0);
      const std::vector<uint8_t> bytes =
          PatternBytes(operation.pattern, operation.offset_bytes, operation.length_bytes);
      std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<ptrdiff_t>(operation.offset_bytes));
      break;
    }
    case OperationKind::kTruncate:
      if (const auto found = nodes_.find(operation.node); found != nodes_.end() && !operation.failed) {
        found->second.content.resize(operation.length_bytes, 0);
      }
      break;
    case OperationKind::kClose:
    case OperationKind::kSync:
    case OperationKind::kDataSync:
      break;
  }
}

// Walks a history once and notes, after each call, the names, the content of the file it changed, and what the
// acknowledged syncs guarantee.
class History::Recorder {
 public:
  explicit Recorder(History* history) : history_(history) {}

  void RecordStart() { RecordState(); }

  void Record(const Operation& operation, size_t calls) {
    NoteTouches(operation, calls);
    const uint64_t size_before = SizeOf(operation.node);
    tree_.Apply(operation);
    switch (operation.kind) {
      case OperationKind::kCreate:
        AddVersion(operation.node, calls, false);
        break;
      case OperationKind::kWrite:
        AddVersion(operation.node, calls, false, operation.offset_bytes + operation.length_bytes);
        // The size moves in a transaction that no earlier namespace change can follow.
        if (SizeOf(operation.node) > size_before) data_touch_[operation.node] = sync_touch_[operation.node] = calls;
        break;
      case OperationKind::kTruncate:
        if (operation.failed) {
          AddZeroedVersion(operation.node, calls, operation.length_bytes);
          break;
        }
        AddVersion(operation.node, calls, true);
        data_touch_[operation.node] = sync_touch_[operation.node] = calls;
        break;
      case OperationKind::kSync:
      case OperationKind::kDataSync:
        NoteSync(operation, calls);
        break;
      default:
        break;
    }
    RecordState();
  }

 private:
  uint64_t SizeOf(NodeId node) const {
    const auto found = tree_.nodes().find(node);
    return found == tree_.nodes().end() ? 0 : found->second.content.size();
  }

  // Which inodes' transactions a namespace change moves: those of the directories and of the nodes themselves.
  void NoteTouches(const Operation& operation, size_t calls) {
    switch (operation.kind) {
      case OperationKind::kCreate:
      case OperationKind::kMakeDirectory:
      case OperationKind::kSymlink:
        data_touch_[operation.node] = calls;
        [[fallthrough]];
      case OperationKind::kLink:
        sync_touch_[operation.node] = calls;
        sync_touch_[operation.directory] = calls;
        break;
      case OperationKind::kUnlink:
      case OperationKind::kRemoveDirectory:
        sync_touch_[tree_.Child(operation.directory, operation.name)] = calls;
        sync_touch_[operation.directory] = calls;
        break;
      case OperationKind::kRename: {
        const NodeId replaced = tree_.Child(operation.new_directory, operation.new_name);
        const NodeId moved = tree_.Child(operation.directory, operation.name);
        if (replaced == moved) break;
        sync_touch_[moved] = calls;
        if (replaced != 0) sync_touch_[replaced] = calls;
        sync_touch_[operation.directory] = calls;
        sync_touch_[operation.new_directory] = calls;
        break;
      }
      default:
        break;
    }
  }

  void NoteSync(const Operation& operation, size_t calls) {
    const bool data_only = operation.kind == OperationKind::kDataSync;
    const size_t touched = data_only ? data_touch_[operation.node] : sync_touch_[operation.node];
    bounds_.names = std::max(bounds_.names, touched);
    bounds_.data_calls[operation.node] = calls;
  }

  void AddVersion(NodeId node, size_t calls, bool truncate, uint64_t write_end_bytes = 0) {
    const auto found = tree_.nodes().find(node);
    if (found == tree_.nodes().end()) return;
    history_->versions_[node].push_back(
        Version{calls, truncate, write_end_bytes, std::make_shared<const std::vector<uint8_t>>(found->second.content)});
  }

  void AddZeroedVersion(NodeId node, size_t calls, uint64_t from_bytes) {
    const auto found = tree_.nodes().find(node);
    if (found == tree_.nodes().end()) return;
    std::vector<uint8_t> content = found->second.content;
    if (from_bytes < content.size()) std::fill(content.begin() + static_cast<ptrdiff_t>(from_bytes), content.end(), 0);
    const uint64_t size_bytes = content.size();
    history_->versions_[node].push_back(
        Version{calls, false, size_bytes, std::make_shared<const std::vector<uint8_t>>(std::move(content))});
  }

  void RecordState() {
    State state;
    NamesText names;
    Walk(kBaseNode, "", &names, &state);
    state.names = names.Take();
    history_->states_.push_back(std::move(state));
    history_->bounds_.push_back(bounds_);
  }

  // In byte order of whole paths, as a std::map of paths is walked.
  void Walk(NodeId directory, const std::string& prefix, NamesText* names, State* state) const {
    std::map<std::string, NodeId> paths;
    Collect(directory, prefix, &paths);
    for (const auto& [path, id] : paths) {
      const TreeModel::Node& node = tree_.nodes().at(id);
      names->Add(path, node.kind, node.links, node.target, id);
      if (node.kind == NodeKind::kFile) state->files[path] = id;
    }
  }
  void Collect(NodeId directory, const std::string& prefix, std::map<std::string, NodeId>* paths) const {
    for (const auto& [name, id] : tree_.nodes().at(directory).children) {
      (*paths)[prefix + name] = id;
      if (tree_.nodes().at(id).kind == NodeKind::kDirectory) Collect(id, prefix + name + "/", paths);
    }
  }

  History* const history_;
  TreeModel tree_;
  Bounds bounds_;
  absl::flat_hash_map<NodeId, size_t> sync_touch_;
  absl::flat_hash_map<NodeId, size_t> data_touch_;
};

History::History(std::vector<Operation> operations) : operations_(std::move(operations)) {
  Recorder recorder(this);
  recorder.RecordStart();
  for (size_t i = 0; i < operations_.size(); ++i) recorder.Record(operations_[i], i + 1);
}

std::string History::Explain(const ObservedTree& tree, const Progress& progress) const {
  NamesText text;
  for (const auto& [path, node] : tree) {
    // Inode numbers, not paths, identify files; directories and symlinks have one name each.
    text.Add(path, node.kind, node.links, node.target, node.inode);
  }
  const std::string names = text.Take();
  const size_t least = BoundsAfter(progress.ended).names;
  std::string problems;
  for (size_t calls = least; calls <= progress.begun; ++calls) {
    if (states_[calls].names != names) continue;
    const std::string problem = ExplainContents(tree, states_[calls], calls, progress);
    if (problem.empty()) return "";
    absl::StrAppend(&problems, "\n    if these are the names after ", calls, " calls: ", problem);
  }
  if (!problems.empty()) return problems;
  for (size_t calls = 0; calls < states_.size(); ++calls) {
    if (states_[calls].names == names) {
      return absl::StrCat("the names are those after ", calls, " calls; allowed are ", least, " to ", progress.begun,
                          FirstDifference(states_[calls < least ? least : progress.begun].names, names));
    }
  }
  return absl::StrCat("the names are those of no moment; compared with the state after ", least, " of ", progress.begun,
                      " calls", FirstDifference(states_[least].names, names), "\n  and after all of them",
                      FirstDifference(states_[progress.begun].names, names));
}

std::string History::ExplainFinal(const ObservedTree& tree) const {
  NamesText text;
  for (const auto& [path, node] : tree) text.Add(path, node.kind, node.links, node.target, node.inode);
  const std::string names = text.Take();
  if (names != states_.back().names) {
    return absl::StrCat("names differ", FirstDifference(states_.back().names, names));
  }
  for (const auto& [path, file] : states_.back().files) {
    const std::vector<uint8_t>& expected = *versions_.at(file).back().content;
    const std::vector<uint8_t>& found = tree.at(path).content;
    if (expected.size() != found.size()) {
      return absl::StrCat(path, ": ", found.size(), " bytes, expected ", expected.size());
    }
    const auto [at, ignored] = std::mismatch(expected.begin(), expected.end(), found.begin());
    if (at != expected.end()) return absl::StrCat(path, ": differs at byte ", at - expected.begin());
  }
  return "";
}

std::string History::ExplainContents(const ObservedTree& tree, const State& state, size_t names,
                                     const Progress& progress) const {
  for (const auto& [path, file] : state.files) {
    const std::string problem = ExplainFile(tree.at(path), file, names, progress);
    if (!problem.empty()) return absl::StrCat(path, " (file ", file, "): ", problem);
  }
  return "";
}

bool History::IsSizeAllowed(const std::vector<Version>& versions, size_t first, size_t end, uint64_t size_bytes) {
  uint64_t floor = 0;  // what no write can make smaller
  for (size_t i = first; i < end; ++i) {
    const Version& version = versions[i];
    if (version.content->size() == size_bytes) return true;
    if (i == first || version.truncate) floor = version.content->size();
    if (i == first || size_bytes <= floor || size_bytes > version.write_end_bytes) continue;
    // Whole, or in part: the extents of one write enter one after the other.
    if (version.write_end_bytes == size_bytes || size_bytes % kSectorBytes == 0) return true;
  }
  return false;
}

bool History::EveryByteKnown(const ObservedNode& node, uint64_t at, uint64_t length, size_t first, size_t end,
                             const std::vector<Version>& versions) {
  for (uint64_t byte = at; byte < at + length; ++byte) {
    bool known = false;
    for (size_t i = first; i < end && !known; ++i) {
      const std::vector<uint8_t>& content = *versions[i].content;
      known = node.content[byte] == (byte < content.size() ? content[byte] : 0);
    }
    if (!known) return false;
  }
  return true;
}

std::string History::ExplainFile(const ObservedNode& node, NodeId file, size_t names, const Progress& progress) const {
  const std::vector<Version>& versions = versions_.at(file);
  const auto& data_calls = BoundsAfter(progress.ended).data_calls;
  const auto synced = data_calls.find(file);
  size_t first = 0;
  size_t first_size = 0;
  size_t end = 0;
  for (size_t i = 0; i < versions.size() && versions[i].calls <= progress.begun; ++i) {
    end = i + 1;
    if (synced != data_calls.end() && versions[i].calls <= synced->second) first = i;
    if (versions[i].truncate && versions[i].calls <= names) first_size = i;
  }
  first_size = std::max(first, first_size);
  if (!IsSizeAllowed(versions, first_size, end, node.size_bytes)) {
    return absl::StrCat("size ", node.size_bytes, " is none of those after call ", versions[first_size].calls,
                        " (size ", versions[first_size].content->size(), ") to call ", versions[end - 1].calls,
                        " (size ", versions[end - 1].content->size(), ")");
  }
  if (node.content.size() != node.size_bytes) return absl::StrCat("only ", node.content.size(), " bytes can be read");
  for (uint64_t at = 0; at < node.content.size(); at += kSectorBytes) {
    const uint64_t length = std::min<uint64_t>(kSectorBytes, node.content.size() - at);
    bool known = false;
    for (size_t i = end; i-- > first && !known;) {
      const std::vector<uint8_t>& content = *versions[i].content;
      const uint64_t have = content.size() <= at ? 0 : std::min<uint64_t>(length, content.size() - at);
      known = (have == 0 || std::memcmp(content.data() + at, node.content.data() + at, have) == 0) &&
              std::all_of(node.content.begin() + static_cast<ptrdiff_t>(at + have),
                          node.content.begin() + static_cast<ptrdiff_t>(at + length), [](uint8_t b) { return b == 0; });
    }
    // A write that the device refused leaves a hole, which later writes to the same sector fill around.
    if (!known && writes_may_fail_) known = EveryByteKnown(node, at, length, first, end, versions);
    if (!known) {
      return absl::StrCat("the sector at byte ", at, " of ", node.content.size(), " holds (first bytes ",
                          node.content[at], " ", node.content[std::min(at + 1, node.content.size() - 1)],
                          ") none of its contents from call ", versions[first].calls, " to call ",
                          versions[end - 1].calls);
    }
  }
  return "";
}

}  // namespace elidefs::simulator
