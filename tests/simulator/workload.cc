#include "tests/simulator/workload.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace elidefs::simulator {
namespace {

constexpr uint32_t kFileMode = S_IFREG | 0644;
constexpr uint32_t kDirectoryMode = 0755;

class Generator {
 public:
  explicit Generator(const WorkloadOptions& options) : options_(options), random_(options.seed) {}

  std::vector<Operation> Generate() {
    std::vector<Operation> operations;
    while (operations.size() < options_.operations) {
      Operation operation;
      if (!Draw(&operation)) continue;
      std::vector<NodeId> before;
      for (const auto& [id, node] : tree_.nodes()) before.push_back(id);
      tree_.Apply(operation);
      for (const NodeId id : before) {
        if (tree_.nodes().count(id) == 0) dead_.push_back(id);
      }
      operations.push_back(std::move(operation));
    }
    return operations;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Percent(uint32_t percent) { return Below(100) < percent; }

  NodeId Pick(NodeKind kind) {
    std::vector<NodeId> candidates;
    for (const auto& [id, node] : tree_.nodes()) {
      if (node.kind == kind) candidates.push_back(id);
    }
    // 0 also stands for the base folder, which is a directory.
    return candidates.empty() ? 0 : candidates[Below(candidates.size())];
  }
  struct Place {
    NodeId directory = 0;
    std::string name;
    NodeId node = 0;
  };
  bool PickName(bool directory, Place* place) {
    std::vector<Place> places;
    for (const auto& [id, node] : tree_.nodes()) {
      for (const auto& [name, child] : node.children) {
        if ((tree_.nodes().at(child).kind == NodeKind::kDirectory) == directory) places.push_back({id, name, child});
      }
    }
    if (places.empty()) return false;
    *place = places[Below(places.size())];
    return true;
  }
  std::string NewName() {
    // Some long names, so that directories get more than one block.
    std::string name = absl::StrCat("n", next_name_++);
    if (Percent(25)) name.append(20 + Below(200), 'x');
    return name;
  }
  size_t files() const {
    return static_cast<size_t>(std::count_if(tree_.nodes().begin(), tree_.nodes().end(),
                                             [](const auto& entry) { return entry.second.kind == NodeKind::kFile; }));
  }

  bool Draw(Operation* operation);
  bool DrawClose(Operation* operation);
  bool DrawSync(Operation* operation);
  bool DrawNew(Operation* operation);
  bool DrawWrite(Operation* operation);
  bool DrawTruncate(Operation* operation);
  bool DrawRename(Operation* operation);
  bool DrawRemove(Operation* operation);

  const WorkloadOptions options_;
  std::mt19937_64 random_;
  TreeModel tree_;
  std::vector<NodeId> dead_;  // without names, not yet closed
  NodeId next_node_ = 1;
  uint64_t next_name_ = 0;
  uint64_t next_pattern_ = 1;
};

bool Generator::Draw(Operation* operation) {
  if (Percent(options_.sync_percent)) return DrawSync(operation);
  if (!dead_.empty() && Percent(25)) return DrawClose(operation);
  const uint64_t draw = Below(100);
  if (draw < 18) return DrawNew(operation);
  if (draw < 66) return DrawWrite(operation);
  if (draw < 74) return DrawTruncate(operation);
  if (draw < 84) return DrawRename(operation);
  if (draw < 94) return DrawRemove(operation);
  return DrawClose(operation);
}

bool Generator::DrawClose(Operation* operation) {
  operation->kind = OperationKind::kClose;
  if (dead_.empty()) {
    operation->node = Pick(NodeKind::kFile);
  } else {
    // Until here the file was an orphan.
    operation->node = dead_.back();
    dead_.pop_back();
  }
  return operation->node != 0;
}

bool Generator::DrawSync(Operation* operation) {
  const uint64_t draw = Below(10);
  operation->kind = draw < 5 ? OperationKind::kDataSync : OperationKind::kSync;
  operation->node = Pick(draw < 8 ? NodeKind::kFile : NodeKind::kDirectory);
  return draw >= 8 || operation->node != 0;
}

bool Generator::DrawNew(Operation* operation) {
  const uint64_t draw = Below(10);
  operation->directory = Pick(NodeKind::kDirectory);
  operation->name = NewName();
  if (draw == 0) {
    operation->kind = OperationKind::kLink;
    operation->node = Pick(NodeKind::kFile);
    return operation->node != 0;
  }
  operation->node = next_node_++;
  if (draw == 1) {
    operation->kind = OperationKind::kSymlink;
    operation->target.assign(1 + Below(120), 't');  // fast ones and ones with a block
    return true;
  }
  operation->kind = draw < 4 ? OperationKind::kMakeDirectory : OperationKind::kCreate;
  return operation->kind == OperationKind::kMakeDirectory || files() < options_.most_files;
}

bool Generator::DrawWrite(Operation* operation) {
  operation->kind = OperationKind::kWrite;
  operation->node = Pick(NodeKind::kFile);
  if (operation->node == 0) return false;
  const uint64_t size = tree_.nodes().at(operation->node).content.size();
  const bool aligned = Percent(40);
  operation->length_bytes = 1 + Below(options_.most_write_bytes);
  const uint64_t draw = Below(10);
  if (draw < 4) {
    operation->offset_bytes = size;  // append
  } else if (draw < 8 && size > 0) {
    operation->offset_bytes = Below(size);  // overwrite, maybe across the end
  } else {
    operation->offset_bytes = Below(options_.most_file_bytes);  // maybe a hole
  }
  if (aligned) {
    operation->offset_bytes -= operation->offset_bytes % 4096;
    operation->length_bytes += 4095 - (operation->length_bytes - 1) % 4096;
  }
  operation->pattern = next_pattern_++ ^ (options_.seed << 20U);
  const uint64_t end = operation->offset_bytes + operation->length_bytes;
  const uint64_t growth = end > size ? end - size : 0;
  return end <= options_.most_file_bytes && tree_.total_bytes() + growth <= options_.most_total_bytes;
}

bool Generator::DrawTruncate(Operation* operation) {
  operation->kind = OperationKind::kTruncate;
  operation->node = Pick(NodeKind::kFile);
  if (operation->node == 0) return false;
  const uint64_t size = tree_.nodes().at(operation->node).content.size();
  operation->length_bytes = Percent(70) ? Below(size + 1) : size + Below(20000);
  return operation->length_bytes <= options_.most_file_bytes;
}

bool Generator::DrawRename(Operation* operation) {
  operation->kind = OperationKind::kRename;
  Place from;
  if (!PickName(Percent(30), &from)) return false;
  const bool directory = tree_.nodes().at(from.node).kind == NodeKind::kDirectory;
  operation->directory = from.directory;
  operation->name = from.name;
  Place over;
  if (Percent(40) && PickName(directory, &over)) {
    // Onto an existing name; directories only onto empty ones.
    if (over.node == from.node || (directory && !tree_.nodes().at(over.node).children.empty())) return false;
    operation->new_directory = over.directory;
    operation->new_name = over.name;
  } else {
    operation->new_directory = Pick(NodeKind::kDirectory);
    operation->new_name = NewName();
  }
  return !directory || !tree_.IsBelow(operation->new_directory, from.node);
}

bool Generator::DrawRemove(Operation* operation) {
  Place place;
  const bool directory = Percent(30);
  if (!PickName(directory, &place)) return false;
  operation->kind = directory ? OperationKind::kRemoveDirectory : OperationKind::kUnlink;
  operation->directory = place.directory;
  operation->name = place.name;
  return !directory || tree_.nodes().at(place.node).children.empty();
}

absl::Status ObserveFolder(Volume* volume, InodeId folder, const std::string& prefix, ObservedTree* tree);

absl::Status ObserveNode(Volume* volume, const Entry& entry, const std::string& path, ObservedTree* tree) {
  ObservedNode& node = (*tree)[path];
  node.inode = entry.inode;
  node.links = entry.attributes.st_nlink;
  node.size_bytes = static_cast<uint64_t>(entry.attributes.st_size);
  if (S_ISDIR(entry.attributes.st_mode)) {
    node.kind = NodeKind::kDirectory;
    return ObserveFolder(volume, entry.inode, path + "/", tree);
  }
  if (S_ISLNK(entry.attributes.st_mode)) {
    node.kind = NodeKind::kSymlink;
    absl::StatusOr<std::string> target = volume->ReadLink(entry.inode);
    if (!target.ok()) return target.status();
    node.target = *std::move(target);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<File>> file = volume->OpenFile(entry.inode, kOpenRead);
  if (!file.ok()) return file.status();
  if (node.size_bytes > (64U << 20U)) return absl::InternalError(absl::StrCat("size ", node.size_bytes));
  node.content.resize(node.size_bytes);
  absl::StatusOr<size_t> got = (*file)->Read(0, absl::MakeSpan(node.content));
  if (!got.ok()) return got.status();
  node.content.resize(*got);
  return absl::OkStatus();
}

absl::Status ObserveFolder(Volume* volume, InodeId folder, const std::string& prefix, ObservedTree* tree) {
  std::vector<std::string> names;
  absl::Status status = volume->ReadDirectory(folder, 0, [&names](const DirectoryItem& item) {
    if (item.name != "." && item.name != "..") names.emplace_back(item.name);
    return true;
  });
  if (!status.ok()) return status;
  for (const std::string& name : names) {
    absl::StatusOr<Entry> entry = volume->Lookup(folder, name);
    if (!entry.ok())
      return absl::Status(entry.status().code(), absl::StrCat(prefix, name, ": ", entry.status().ToString()));
    status = ObserveNode(volume, *entry, prefix + name, tree);
    volume->Forget(entry->inode, 1);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(prefix, name, ": ", status.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Operation> GenerateWorkload(const WorkloadOptions& options) {
  return Generator(options).Generate();
}

Runner::Runner(Volume* volume, blockio::VolatileCacheDevice* device, uint32_t thread, InodeId base)
    : volume_(volume), device_(device), thread_(thread) {
  inodes_[kBaseNode] = base;
}

Runner::~Runner() {
  Release();
}

void Runner::Release() {
  files_.clear();
  for (const auto& [node, count] : lookups_) volume_->Forget(inodes_.at(node), count);
  lookups_.clear();
}

absl::Status Runner::Run(const std::vector<Operation>& operations, size_t first_call) {
  for (size_t call = 0; call < operations.size(); ++call) {
    absl::Status status = RunOne(first_call + call, operations[call]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Runner::RunOne(size_t call, const Operation& operation) {
  if (device_ != nullptr) device_->Mark(MarkNumber(thread_, call, false));
  const absl::Status status = Execute(operation);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("thread ", thread_, " call ", call, " (", operation.ToString(),
                                                    "): ", status.ToString()));
  }
  if (device_ != nullptr) device_->Mark(MarkNumber(thread_, call, true));
  return absl::OkStatus();
}

absl::StatusOr<File*> Runner::Open(NodeId node) {
  std::unique_ptr<File>& file = files_[node];
  if (file == nullptr) {
    absl::StatusOr<std::unique_ptr<File>> opened = volume_->OpenFile(inodes_.at(node), kOpenRead | kOpenWrite);
    if (!opened.ok()) return opened.status();
    file = *std::move(opened);
  }
  return file.get();
}

void Runner::Remember(NodeId node, const Entry& entry) {
  inodes_[node] = entry.inode;
  ++lookups_[node];
}

absl::Status Runner::Execute(const Operation& operation) {
  absl::StatusOr<Entry> entry;
  switch (operation.kind) {
    case OperationKind::kCreate:
      entry = volume_->MakeNode(inode(operation.directory), operation.name, kFileMode, 0, Credentials{});
      break;
    case OperationKind::kMakeDirectory:
      entry = volume_->MakeDirectory(inode(operation.directory), operation.name, kDirectoryMode, Credentials{});
      break;
    case OperationKind::kSymlink:
      entry = volume_->MakeSymlink(inode(operation.directory), operation.name, operation.target, Credentials{});
      break;
    case OperationKind::kLink:
      entry = volume_->Link(inode(operation.node), inode(operation.directory), operation.name);
      break;
    case OperationKind::kUnlink:
      return volume_->Unlink(inode(operation.directory), operation.name);
    case OperationKind::kRemoveDirectory:
      return volume_->RemoveDirectory(inode(operation.directory), operation.name);
    case OperationKind::kRename:
      return volume_->Rename(inode(operation.directory), operation.name, inode(operation.new_directory),
                             operation.new_name, 0);
    case OperationKind::kWrite: {
      absl::StatusOr<File*> file = Open(operation.node);
      if (!file.ok()) return file.status();
      const std::vector<uint8_t> bytes =
          PatternBytes(operation.pattern, operation.offset_bytes, operation.length_bytes);
      absl::StatusOr<size_t> written = (*file)->Write(operation.offset_bytes, bytes);
      if (!written.ok()) return written.status();
      return *written == bytes.size() ? absl::OkStatus() : absl::InternalError(absl::StrCat("short write ", *written));
    }
    case OperationKind::kTruncate: {
      AttributeChange change;
      change.fields = AttributeChange::kSize;
      change.size_bytes = operation.length_bytes;
      return volume_->SetAttributes(inode(operation.node), change).status();
    }
    case OperationKind::kClose:
      files_.erase(operation.node);
      if (const auto found = lookups_.find(operation.node); found != lookups_.end()) {
        volume_->Forget(inode(operation.node), found->second);
        lookups_.erase(found);
      }
      return absl::OkStatus();
    case OperationKind::kSync:
    case OperationKind::kDataSync:
      return Sync(operation);
  }
  if (!entry.ok()) return entry.status();
  Remember(operation.node, *entry);
  if (operation.kind == OperationKind::kMakeDirectory) directories_.insert(operation.node);
  return absl::OkStatus();
}

absl::Status Runner::Sync(const Operation& operation) {
  const bool data_only = operation.kind == OperationKind::kDataSync;
  if (!IsDirectory(operation.node)) {
    absl::StatusOr<File*> file = Open(operation.node);
    return file.ok() ? (*file)->Sync(data_only) : file.status();
  }
  Notification done;
  int error = 0;
  volume_->SyncDirectoryAsync(inode(operation.node), data_only, [&](int result) {
    error = result;
    done.Notify();
  });
  done.Wait();
  return error == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("errno ", error));
}

absl::StatusOr<ObservedTree> ObserveVolume(Volume* volume, const std::string& folder) {
  absl::StatusOr<Entry> entry = volume->LookupPath(folder);
  if (!entry.ok()) return entry.status();
  ObservedTree tree;
  const absl::Status status = ObserveFolder(volume, entry->inode, "", &tree);
  volume->Forget(entry->inode, 1);
  if (!status.ok()) return status;
  return tree;
}

}  // namespace elidefs::simulator
