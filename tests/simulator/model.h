// Model: what must, may and must not be on a volume after a power cut, given the calls that were made and acknowledged.
//
// One thread of a workload works alone in one folder, so its calls are a sequence ("history") and every state it could
// leave is known. What is allowed after a cut (docs/flush_elision.md, "What each call promises"):
//   names    one journal orders all namespace changes, so the surviving names are the state after some number of calls,
//            at least as many as an acknowledged sync guarantees and at most as many as had begun.
//   sizes    those of the file after any data call from the last one that a sync of the file covers, and the end of any
//            write since (unsynced writes may overtake each other); a truncate is a change of the journal too, so it is
//            there whenever a later surviving namespace change is.
//   content  per 512-byte sector: what it held after any data call from the last covered one on. Older content, bytes
//   of
//            other files and of the unused disk are violations. Sectors are independent: unsynced writes may be torn.
// Nothing here knows how elidefs works. Threads: const methods may run in parallel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace elidefs::simulator {

// Identity of a file, directory or symlink of the model; never used again. 0: the folder of the history.
using NodeId = uint32_t;
inline constexpr NodeId kBaseNode = 0;
inline constexpr uint64_t kSectorBytes = 512;

enum class NodeKind : uint8_t { kFile, kDirectory, kSymlink };

enum class OperationKind : uint8_t {
  kCreate,           // node, directory, name
  kMakeDirectory,    // node, directory, name
  kSymlink,          // node, directory, name, target
  kLink,             // node (exists), directory, name
  kUnlink,           // directory, name
  kRemoveDirectory,  // directory, name
  kRename,           // directory, name, new_directory, new_name
  kWrite,            // node, offset_bytes, length_bytes, pattern
  kTruncate,         // node, length_bytes
  kClose,            // node: the open description is closed and the inode forgotten
  kSync,             // node: fsync of a file or directory
  kDataSync,         // node: fdatasync of a file
};

struct Operation {
  OperationKind kind = OperationKind::kClose;
  NodeId node = 0;
  NodeId directory = 0;
  std::string name;
  NodeId new_directory = 0;
  std::string new_name;
  std::string target;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t pattern = 0;
  bool failed = false;  // kTruncate: the size is as before, what was to be cut off may read as zeroes

  std::string ToString() const;
};

// The bytes that a write of `pattern` puts at [offset, offset + length) of its file: different in every sector.
std::vector<uint8_t> PatternBytes(uint64_t pattern, uint64_t offset_bytes, uint64_t length_bytes);

// The tree after some calls. Used by the generator (what may be called next) and by History.
class TreeModel {
 public:
  struct Node {
    NodeKind kind = NodeKind::kFile;
    uint32_t links = 0;
    NodeId parent = 0;                       // directories
    std::map<std::string, NodeId> children;  // directories
    std::string target;                      // symlinks
    std::vector<uint8_t> content;            // files
  };
  TreeModel();
  // The call makes sense here and POSIX lets it succeed. Files without a name count as gone.
  bool IsLegal(const Operation& operation) const;
  // A legal call succeeds.
  void Apply(const Operation& operation);

  const std::map<NodeId, Node>& nodes() const { return nodes_; }  // those with a name
  // 0 if there is no such name; the base folder is never anybody's child.
  NodeId Child(NodeId directory, const std::string& name) const;
  // `node` is `ancestor` or below it.
  bool IsBelow(NodeId node, NodeId ancestor) const;
  uint64_t total_bytes() const;

 private:
  void Attach(NodeId directory, const std::string& name, NodeId node);
  void Detach(NodeId directory, const std::string& name);
  std::map<NodeId, Node> nodes_;
};

// A tree read back from a volume by any reader. Paths are relative to the history's folder.
struct ObservedNode {
  NodeKind kind = NodeKind::kFile;
  uint64_t inode = 0;
  uint64_t links = 0;
  uint64_t size_bytes = 0;
  std::string target;
  std::vector<uint8_t> content;
};
using ObservedTree = std::map<std::string, ObservedNode>;

// How far a history had come at the cut.
struct Progress {
  size_t begun = 0;  // calls that had begun
  size_t ended = 0;  // calls that were acknowledged
};

class History {
 public:
  explicit History(std::vector<Operation> operations);

  const std::vector<Operation>& operations() const { return operations_; }
  // Empty if `tree` is allowed, otherwise what is wrong.
  std::string Explain(const ObservedTree& tree, const Progress& progress) const;
  // The device may refuse writes of this history.
  void AllowFailedWrites() { writes_may_fail_ = true; }
  // What a run without any cut must leave.
  std::string ExplainFinal(const ObservedTree& tree) const;

 private:
  bool writes_may_fail_ = false;
  struct Version {
    size_t calls = 0;  // the first so many calls lead to this content
    bool truncate = false;
    uint64_t write_end_bytes = 0;  // of a write: the byte behind it
    std::shared_ptr<const std::vector<uint8_t>> content;
  };
  struct State {
    std::string names;                    // canonical text of the namespace
    std::map<std::string, NodeId> files;  // path -> file
  };
  struct Bounds {
    size_t names = 0;                                // calls whose namespace changes are guaranteed
    absl::flat_hash_map<NodeId, size_t> data_calls;  // per file: calls whose data is guaranteed
  };
  // What each call adds to the guarantees; see the .cc file.
  class Recorder;

  std::string ExplainContents(const ObservedTree& tree, const State& state, size_t names,
                              const Progress& progress) const;
  // Whether the file may have this size when all versions below `first` are covered by syncs and those from `end` on
  // have not begun.
  static bool EveryByteKnown(const ObservedNode& node, uint64_t at, uint64_t length, size_t first, size_t end,
                             const std::vector<Version>& versions);
  static bool IsSizeAllowed(const std::vector<Version>& versions, size_t first, size_t end, uint64_t size_bytes);
  std::string ExplainFile(const ObservedNode& node, NodeId file, size_t names, const Progress& progress) const;
  const Bounds& BoundsAfter(size_t ended) const { return bounds_[ended]; }

  std::vector<Operation> operations_;
  std::vector<State> states_;   // by number of calls
  std::vector<Bounds> bounds_;  // by number of acknowledged calls
  absl::flat_hash_map<NodeId, std::vector<Version>> versions_;
};

}  // namespace elidefs::simulator
