#include "blockio/device/stacked_device.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "blockio/device/segment_cursor.h"

namespace elidefs::blockio {
namespace {

// Where a byte of the stacked device lies.
struct Place {
  size_t leaf;
  uint64_t offset_bytes;      // on the leaf
  uint64_t contiguous_bytes;  // from there on, on this leaf
};

class StackedDevice final : public BlockDevice {
 public:
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Create(std::vector<std::unique_ptr<BlockDevice>> leaves,
                                                             const StackedDeviceOptions& options);

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  bool HasVolatileCache() override {
    return std::any_of(leaves_.begin(), leaves_.end(), [](const auto& leaf) { return leaf->HasVolatileCache(); });
  }
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(uint32_t index, uint32_t depth) override;

  const StackedDeviceOptions& options() const { return options_; }
  size_t leaf_count() const { return leaves_.size(); }
  Place Find(uint64_t offset_bytes) const;

 private:
  StackedDevice(std::vector<std::unique_ptr<BlockDevice>> leaves, const StackedDeviceOptions& options)
      : leaves_(std::move(leaves)), options_(options) {}
  void MergeCapabilities();
  absl::Status LayOut();

  const std::vector<std::unique_ptr<BlockDevice>> leaves_;
  const StackedDeviceOptions options_;
  std::string name_;
  DeviceCapabilities capabilities_;
  std::vector<uint64_t> ends_bytes_;  // linear: where each leaf ends on the stacked device
};

struct Split;

// What one leaf does of a request: its pieces there are contiguous, for a stripe too.
struct Child : DeviceRequest {
  Split* split = nullptr;
  size_t leaf = 0;
  std::vector<iovec> pieces;
};

// A request on its way. One more than the children is counted while they are being submitted.
struct Split {
  DeviceRequest* parent = nullptr;
  bool drop_child_error = false;
  std::vector<Child> children;  // at most one a leaf
  std::atomic<uint32_t> left{1};
  std::atomic<int> error{0};

  // The parent is told exactly once, by whoever is last.
  static void End(Split* split) {
    if (split->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::unique_ptr<Split> owned(split);
    owned->parent->complete(owned->parent, owned->error.load(std::memory_order_relaxed));
  }
};

class StackedQueue final : public DeviceQueue {
 public:
  StackedQueue(const StackedDevice* device, std::vector<std::unique_ptr<DeviceQueue>> leaves)
      : device_(device), leaves_(std::move(leaves)) {}

  void Submit(DeviceRequest* request) override;
  uint32_t Poll() override {
    uint32_t completed = 0;
    for (const auto& leaf : leaves_) completed += leaf->Poll();
    return completed;
  }

 private:
  static Child MakeChild(const DeviceRequest& request, size_t leaf, uint64_t offset_bytes);
  void SplitFlush(const DeviceRequest& request, Split* split) const;
  void SplitRange(const DeviceRequest& request, Split* split) const;

  const StackedDevice* const device_;
  const std::vector<std::unique_ptr<DeviceQueue>> leaves_;
};

Child StackedQueue::MakeChild(const DeviceRequest& request, size_t leaf, uint64_t offset_bytes) {
  Child child;
  child.operation = request.operation;
  child.fua = request.fua;
  child.offset_bytes = offset_bytes;
  child.leaf = leaf;
  return child;
}

void StackedQueue::SplitFlush(const DeviceRequest& request, Split* split) const {
  const size_t leaves = device_->options().flush_first_leaf_only ? 1 : device_->leaf_count();
  for (size_t leaf = 0; leaf < leaves; ++leaf) split->children.push_back(MakeChild(request, leaf, 0));
}

void StackedQueue::SplitRange(const DeviceRequest& request, Split* split) const {
  SegmentCursor memory(request);
  for (uint64_t done = 0; done < request.length_bytes;) {
    const Place place = device_->Find(request.offset_bytes + done);
    const uint64_t length = std::min(place.contiguous_bytes, request.length_bytes - done);
    auto child = std::find_if(split->children.begin(), split->children.end(),
                              [&place](const Child& other) { return other.leaf == place.leaf; });
    if (child == split->children.end()) {
      child = split->children.insert(child, MakeChild(request, place.leaf, place.offset_bytes));
    }
    child->length_bytes += length;
    done += length;
    memory.Take(length, &child->pieces);
  }
}

void StackedQueue::Submit(DeviceRequest* request) {
  const uint64_t size_bytes = device_->capabilities().size_bytes;
  const bool is_flush = request->operation == Operation::kFlush;
  if (!is_flush && (request->offset_bytes > size_bytes || request->length_bytes > size_bytes - request->offset_bytes)) {
    request->complete(request, EIO);
    return;
  }
  auto* split = new Split;  // deleted by the last End
  split->parent = request;
  split->drop_child_error = device_->options().drop_child_error;
  split->children.reserve(device_->leaf_count());
  if (is_flush) {
    SplitFlush(*request, split);
  } else {
    SplitRange(*request, split);
  }
  const size_t count = split->children.size();
  split->left.fetch_add(static_cast<uint32_t>(count), std::memory_order_relaxed);
  for (Child& child : split->children) {
    child.split = split;
    child.segments = child.pieces.data();
    child.segment_count = static_cast<uint32_t>(child.pieces.size());
    child.complete = [](DeviceRequest* done, int error) {
      auto* self = static_cast<Child*>(done);
      Split* const whole = self->split;
      if (error != 0 && !(whole->drop_child_error && self->leaf > 0)) {
        whole->error.store(error, std::memory_order_relaxed);
      }
      Split::End(whole);
    };
    leaves_[child.leaf]->Submit(&child);
  }
  Split::End(split);
}

Place StackedDevice::Find(uint64_t offset_bytes) const {
  if (options_.chunk_bytes == 0) {
    const auto end = std::upper_bound(ends_bytes_.begin(), ends_bytes_.end(), offset_bytes);
    const auto leaf = static_cast<size_t>(end - ends_bytes_.begin());
    return {leaf, offset_bytes - (leaf == 0 ? 0 : ends_bytes_[leaf - 1]), *end - offset_bytes};
  }
  const uint64_t chunk = offset_bytes / options_.chunk_bytes;
  const uint64_t within = offset_bytes % options_.chunk_bytes;
  return {static_cast<size_t>(chunk % leaves_.size()), chunk / leaves_.size() * options_.chunk_bytes + within,
          options_.chunk_bytes - within};
}

void StackedDevice::MergeCapabilities() {
  capabilities_ = leaves_[0]->capabilities();
  capabilities_.volatile_write_cache = false;
  for (const auto& leaf : leaves_) {
    const DeviceCapabilities& other = leaf->capabilities();
    capabilities_.logical_block_bytes = std::max(capabilities_.logical_block_bytes, other.logical_block_bytes);
    capabilities_.memory_alignment_bytes = std::max(capabilities_.memory_alignment_bytes, other.memory_alignment_bytes);
    capabilities_.max_transfer_bytes = std::min(capabilities_.max_transfer_bytes, other.max_transfer_bytes);
    capabilities_.max_segments = std::min(capabilities_.max_segments, other.max_segments);
    capabilities_.max_queues = std::min(capabilities_.max_queues, other.max_queues);
    capabilities_.volatile_write_cache |= other.volatile_write_cache;
    capabilities_.discard &= other.discard;
    capabilities_.write_zeroes &= other.write_zeroes;
    capabilities_.read_only |= other.read_only;
  }
  capabilities_.native_fua =
      capabilities_.volatile_write_cache && std::all_of(leaves_.begin(), leaves_.end(), [](const auto& leaf) {
        return leaf->capabilities().native_fua || !leaf->capabilities().volatile_write_cache;
      });
}

absl::Status StackedDevice::LayOut() {
  // Requests are split in multiples of the block, and what is split has to keep its alignment in memory.
  const uint64_t unit = std::max(capabilities_.logical_block_bytes, capabilities_.memory_alignment_bytes);
  if (options_.chunk_bytes == 0) {
    uint64_t end = 0;
    for (const auto& leaf : leaves_) {
      const uint64_t size = leaf->capabilities().size_bytes / unit * unit;
      if (size == 0) return ErrnoError(EINVAL, absl::StrCat(leaf->name(), ": too small for a part of a device"));
      ends_bytes_.push_back(end += size);
    }
    capabilities_.size_bytes = end;
    return absl::OkStatus();
  }
  if (options_.chunk_bytes % unit != 0) {
    return ErrnoError(EINVAL, absl::StrCat("a chunk of ", options_.chunk_bytes, " bytes is no multiple of ", unit));
  }
  uint64_t shortest = UINT64_MAX;
  for (const auto& leaf : leaves_) shortest = std::min(shortest, leaf->capabilities().size_bytes);
  capabilities_.size_bytes = shortest / options_.chunk_bytes * options_.chunk_bytes * leaves_.size();
  if (capabilities_.size_bytes == 0) return ErrnoError(EINVAL, "a leaf is smaller than a chunk");
  // Each chunk of a request that lands on a leaf may cut a segment in two.
  const uint64_t cuts = capabilities_.max_transfer_bytes / options_.chunk_bytes / leaves_.size() + 2;
  if (cuts >= capabilities_.max_segments) {
    return ErrnoError(EINVAL, absl::StrCat("a chunk of ", options_.chunk_bytes, " bytes is too small for requests of ",
                                           capabilities_.max_transfer_bytes));
  }
  capabilities_.max_segments -= static_cast<uint32_t>(cuts);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockDevice>> StackedDevice::Create(std::vector<std::unique_ptr<BlockDevice>> leaves,
                                                                   const StackedDeviceOptions& options) {
  if (leaves.empty()) return ErrnoError(EINVAL, "a stacked device needs a leaf");
  std::unique_ptr<StackedDevice> device(new StackedDevice(std::move(leaves), options));
  device->name_ = options.chunk_bytes == 0 ? "linear device over " : "stripe over ";
  for (size_t i = 0; i < device->leaves_.size(); ++i) {
    absl::StrAppend(&device->name_, i == 0 ? "" : " and ", device->leaves_[i]->name());
  }
  device->MergeCapabilities();
  ELIDEFS_RETURN_IF_ERROR(device->LayOut());
  return std::unique_ptr<BlockDevice>(std::move(device));
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> StackedDevice::CreateQueue(uint32_t index, uint32_t depth) {
  std::vector<std::unique_ptr<DeviceQueue>> queues;
  for (const auto& leaf : leaves_) {
    ELIDEFS_ASSIGN_OR_RETURN(queues.emplace_back(), leaf->CreateQueue(index, depth));
  }
  return std::make_unique<StackedQueue>(this, std::move(queues));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockDevice>> StackDevices(std::vector<std::unique_ptr<BlockDevice>> leaves,
                                                          const StackedDeviceOptions& options) {
  return StackedDevice::Create(std::move(leaves), options);
}

}  // namespace elidefs::blockio
