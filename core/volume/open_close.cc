// Mounting and unmounting: superblock, journal replay, orphans, and the way back to a clean volume.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/alloc/block_allocator.h"
#include "core/alloc/group_table.h"
#include "core/alloc/inode_allocator.h"
#include "core/extent/extent_tree.h"
#include "core/inode/inode_store.h"
#include "core/ondisk/checksums.h"
#include "core/ondisk/validate.h"
#include "core/volume/namespace_support.h"
#include "core/volume/volume_impl.h"

namespace elidefs {

absl::StatusOr<std::unique_ptr<Volume>> Volume::Open(std::unique_ptr<BlockDevice> device,
                                                     const VolumeOptions& options) {
  return core::VolumeImpl::Open(std::move(device), options, core::VolumeInternals{});
}

}  // namespace elidefs

namespace elidefs::core {
namespace {

Logger MakeLogger(const VolumeOptions& options) {
  if (!options.log) return Logger();
  return Logger([log = options.log](LogLevel level, std::string_view message) {
    constexpr Severity kSeverities[] = {Severity::kError, Severity::kWarning, Severity::kInfo, Severity::kDebug};
    log(kSeverities[static_cast<size_t>(level)], message);
  });
}

constexpr char kMarkedWithErrors[] =
    "mounted read-only, since the volume is marked with errors; run e2fsck on it before it is written again";

}  // namespace

absl::StatusOr<std::unique_ptr<Volume>> OpenVolumeWithInternals(std::unique_ptr<BlockDevice> device,
                                                                const VolumeOptions& options,
                                                                const VolumeInternals& internals) {
  return VolumeImpl::Open(std::move(device), options, internals);
}

absl::StatusOr<std::unique_ptr<Volume>> VolumeImpl::Open(std::unique_ptr<BlockDevice> device,
                                                         const VolumeOptions& options,
                                                         const VolumeInternals& internals) {
  std::unique_ptr<VolumeImpl> volume(new VolumeImpl);
  const std::string name = device->name();
  if (const absl::Status status = volume->Initialize(std::move(device), options, internals); !status.ok()) {
    const std::string message(status.message());
    if (absl::StartsWith(message, name)) return status;
    return ErrnoError(StatusToErrno(status), absl::StrCat(name, ": ", message));
  }
  return std::unique_ptr<Volume>(std::move(volume));
}

absl::Status VolumeImpl::Initialize(std::unique_ptr<BlockDevice> device, const VolumeOptions& options,
                                    const VolumeInternals& internals) {
  device_ = std::move(device);
  options_ = options;
  context_.logger = MakeLogger(options);
  context_.planted = internals.planted;
  context_.on_corruption = [this](absl::Status status) { return HandleCorruption(std::move(status)); };
  context_.read_only = options.read_only;
  if (!options.read_only && device_->capabilities().read_only) {
    return ErrnoError(EROFS, absl::StrCat(device_->name(), ": the device is read-only; mount with -o ro"));
  }
  blockio::RequestQueueOptions queue_options;
  queue_options.hardware_queues = options.hardware_queues;
  queue_options.queue_depth = options.queue_depth;
  ELIDEFS_ASSIGN_OR_RETURN(context_.queue, blockio::RequestQueue::Create(device_.get(), queue_options));
  context_.queue->ledger().PlantBugs(internals.ledger);

  ELIDEFS_ASSIGN_OR_RETURN(const SuperBlock super_block, ReadSuperBlock());
  // A volume that failed before is replayed and served read-only until e2fsck has seen it (DESIGN, "Errors").
  if ((super_block.s_state & kStateErrors) != 0 && !options.read_only) {
    context_.read_only = true;
    MutexLock lock(failure_mutex_);
    read_only_reason_ = kMarkedWithErrors;
  }
  const DeviceCapabilities& capabilities = context_.queue->capabilities();
  ELIDEFS_ASSIGN_OR_RETURN(
      context_.geometry,
      ValidateSuperBlock(super_block, capabilities.size_bytes, capabilities.logical_block_bytes, !context_.read_only));
  const Geometry& geometry = context_.geometry;
  context_.cache = std::make_unique<BlockCache>(context_.queue.get(), geometry.block_bytes, geometry.block_count,
                                                options.metadata_cache_bytes);
  context_.workers = std::make_unique<WorkerPool>(options.worker_threads, "elidefs-work");
  std::vector<BlockRange> journal_blocks;
  if ((geometry.feature_compat & kCompatHasJournal) != 0) {
    ELIDEFS_ASSIGN_OR_RETURN(journal_blocks, OpenJournalAndRecover());
  }
  ELIDEFS_RETURN_IF_ERROR(LoadMetadata());
  ELIDEFS_RETURN_IF_ERROR(ReadSuperBlock().status());
  ELIDEFS_RETURN_IF_ERROR(context_.groups->AddSystemBlocks(journal_blocks));
  CreateParts(internals);
  // Before anything is written for the mount's sake: a volume without a usable root is of no use to anybody.
  ELIDEFS_RETURN_IF_ERROR(CheckRoot());
  if (context_.read_only) {
    context_.journal.reset();
    return absl::OkStatus();
  }
  ELIDEFS_RETURN_IF_ERROR(StartReadWrite());
  // The volume is in use from here on: a damaged orphan turns it read-only instead of failing the mount half-way.
  if (const absl::Status status = ProcessOrphans(); !status.ok()) context_.journal->Abort(status);
  return absl::OkStatus();
}

absl::Status VolumeImpl::CheckRoot() {
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef root, context_.inode_store->Read(kRootInode, /*allow_orphan=*/false));
  MutexLock lock(root->mutex);
  if (!root->IsDirectory()) return CorruptionError("the root inode is no directory; run e2fsck");
  return absl::OkStatus();
}

absl::StatusOr<SuperBlock> VolumeImpl::ReadSuperBlock() {
  if (context_.cache != nullptr) {
    // After replay the newest content may be in memory only (read-only mounts).
    ELIDEFS_ASSIGN_OR_RETURN(super_block_, context_.cache->Read(context_.geometry.SuperBlockNumber(), nullptr));
    return *super_block();
  }
  constexpr size_t kProbeBytes = 4096;
  const std::string& name = device_->name();
  if (context_.queue->capabilities().size_bytes < kProbeBytes) {
    return ErrnoError(EINVAL, absl::StrCat(name, ": too small to hold an ext4 volume; create one with mkfs.ext4"));
  }
  BufferPool pool;
  const BufferPool::Bytes probe = pool.Allocate(kProbeBytes);
  if (probe == nullptr) return ErrnoError(ENOMEM, "no memory to read the superblock");
  if (const int error = context_.queue->Read(0, probe.get(), kProbeBytes); error != 0) {
    return ErrnoError(error, absl::StrCat(name, ": reading the superblock failed"));
  }
  SuperBlock super_block;
  std::memcpy(&super_block, probe.get() + kSuperBlockOffsetBytes, sizeof(super_block));
  return super_block;
}

absl::StatusOr<std::vector<BlockRange>> VolumeImpl::JournalMap() {
  const InodeNumber number = super_block()->s_journal_inum;
  ELIDEFS_ASSIGN_OR_RETURN(const InodeRef inode, context_.inode_store->Read(number, /*allow_orphan=*/false));
  MutexLock lock(inode->mutex);
  if (!inode->IsRegular())
    return CorruptionError(absl::StrCat("journal inode ", number, " is not a regular file; run e2fsck"));
  const uint64_t blocks = inode->size_bytes >> context_.geometry.block_shift;
  if (blocks > context_.geometry.block_count) {
    return CorruptionError(absl::StrCat("the journal (inode ", number, ") is larger than the volume; run e2fsck"));
  }
  std::vector<BlockRange> map;
  for (uint64_t logical = 0; logical < blocks;) {
    ELIDEFS_ASSIGN_OR_RETURN(const Mapping mapping,
                             LookupMapping(&context_, *inode, static_cast<LogicalBlock>(logical)));
    if (mapping.is_hole() || mapping.unwritten) {
      return CorruptionError(
          absl::StrCat("the journal (inode ", number, ") has a hole at block ", logical, "; run e2fsck"));
    }
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(mapping.length, blocks - logical));
    map.push_back({mapping.physical, count});
    logical += count;
  }
  return map;
}

absl::StatusOr<std::vector<BlockRange>> VolumeImpl::OpenJournalAndRecover() {
  // The journal inode is found through the descriptors as they are before the replay; a checkpoint may have been cut
  // short in them, but a descriptor never crosses a sector.
  ELIDEFS_RETURN_IF_ERROR(LoadMetadata());
  ELIDEFS_ASSIGN_OR_RETURN(const SuperBlock before_replay, ReadSuperBlock());
  ELIDEFS_ASSIGN_OR_RETURN(std::vector<BlockRange> journal_blocks, JournalMap());
  JournalOptions journal_options;
  journal_options.log_map = journal_blocks;
  journal_options.commit_interval_ms = options_.commit_interval_ms;
  journal_options.planted = context_.planted;
  journal_options.logger = context_.logger;
  journal_options.on_durable = [this](TransactionId, const std::vector<BlockRange>& freed) {
    context_.blocks->Release(freed);
    if (data_path_ != nullptr && !freed.empty()) data_path_->SpaceFreed();
  };
  // The log's copy of the superblock is older than a mark that a failure left on it: the mark survives the replay.
  if ((before_replay.s_state & kStateErrors) != 0) {
    journal_options.on_replay = [geometry = context_.geometry](BlockNumber block, uint8_t* bytes) {
      if (block != geometry.SuperBlockNumber()) return;
      auto* super = reinterpret_cast<SuperBlock*>(bytes + kSuperBlockOffsetBytes % geometry.block_bytes);
      super->s_state = static_cast<uint16_t>(super->s_state | kStateErrors);
      SealSuperBlock(super);
    };
  }
  journal_options.on_abort = [this](const absl::Status& reason) { BecomeReadOnly(reason); };
  ELIDEFS_ASSIGN_OR_RETURN(context_.journal, Journal::Open(context_.queue.get(), context_.cache.get(),
                                                           context_.geometry, std::move(journal_options)));
  absl::flat_hash_map<BlockNumber, std::vector<uint8_t>> overlay;
  ELIDEFS_ASSIGN_OR_RETURN(const RecoveryResult result,
                           context_.journal->Recover(options_.read_only ? &overlay : nullptr));
  if (result.replayed) {
    context_.logger.Info(
        absl::StrCat("journal replayed: ", result.transactions, " transactions, ", result.blocks, " blocks"));
  }
  // What was read before the replay may be stale: everything is loaded again.
  super_block_.reset();
  context_.inode_store.reset();
  context_.groups.reset();
  context_.cache->DropAll();
  ELIDEFS_RETURN_IF_ERROR(KeepOverlay(overlay));
  ELIDEFS_ASSIGN_OR_RETURN(const SuperBlock super_block, ReadSuperBlock());
  const bool failed_before = result.journal_errno != 0 || (super_block.s_state & kStateErrors) != 0;
  if (failed_before && !context_.read_only) {
    context_.read_only = true;
    MutexLock lock(failure_mutex_);
    read_only_reason_ = kMarkedWithErrors;
  }
  const DeviceCapabilities& capabilities = context_.queue->capabilities();
  ELIDEFS_ASSIGN_OR_RETURN(
      const Geometry geometry,
      ValidateSuperBlock(super_block, capabilities.size_bytes, capabilities.logical_block_bytes, !context_.read_only));
  if (geometry.block_bytes != context_.geometry.block_bytes || geometry.block_count != context_.geometry.block_count) {
    return CorruptionError("the journal holds a superblock of another geometry; run e2fsck");
  }
  context_.geometry = geometry;
  return journal_blocks;
}

absl::Status VolumeImpl::KeepOverlay(const absl::flat_hash_map<BlockNumber, std::vector<uint8_t>>& overlay) {
  for (const auto& [block_number, bytes] : overlay) {
    ELIDEFS_ASSIGN_OR_RETURN(BufferRef buffer, context_.cache->GetZeroed(block_number));
    std::memcpy(buffer->data(), bytes.data(), std::min<size_t>(bytes.size(), buffer->size_bytes()));
    context_.replayed.emplace(block_number, std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status VolumeImpl::LoadMetadata() {
  context_.groups = std::make_unique<GroupTable>(context_.cache.get(), &context_.geometry);
  context_.inode_store = std::make_unique<InodeStore>(&context_);
  return context_.groups->LoadAll();
}

void VolumeImpl::CreateParts(const VolumeInternals& internals) {
  context_.blocks = std::make_unique<BlockAllocator>(&context_.geometry, context_.groups.get(), &context_.planted);
  context_.inodes = std::make_unique<InodeAllocator>(&context_.geometry, context_.groups.get(), &context_.planted);
  inode_cache_ = std::make_unique<InodeCache>(&context_, internals.inode_cache_limit);
  orphans_ = std::make_unique<OrphanList>(&context_);
  dirty_times_ = std::make_unique<DirtyTimes>(&context_, options_.update_atime);
  DataPath::Options data_options;
  data_options.write_behind_bytes = options_.write_behind_bytes;
  data_path_ = std::make_unique<DataPath>(&context_, dirty_times_.get(), data_options);
  syncer_ = std::make_unique<Syncer>(&context_, data_path_.get(), dirty_times_.get(), options_.group_wait_ms);
  inode_cache_->set_on_unused([this](InodeRef inode) {
    // Writes accepted before the last close end first: a worker must not wait for work that needs a worker.
    auto deletion = std::make_shared<DataPath::Deletion>(data_path_.get());
    data_path_->AfterAcceptedWrites(inode, [this, inode, deletion] {
      context_.workers->Schedule([this, inode, deletion] {
        if (const absl::Status status = DeleteUnused(inode); !status.ok()) {
          context_.logger.Error(absl::StrCat("deleting inode ", inode->number, ": ", std::string(status.message())));
        }
      });
    });
  });
}

absl::Status VolumeImpl::WriteSuperBlock(blockio::Ticket* need) {
  SealSuperBlock(super_block());
  const uint64_t offset = super_block_->block_number() << context_.geometry.block_shift;
  if (const int error = context_.queue->Write(offset, super_block_->data(), super_block_->size_bytes(), need);
      error != 0) {
    return ErrnoError(error, absl::StrCat(device_->name(), ": writing the superblock failed"));
  }
  return absl::OkStatus();
}

absl::Status VolumeImpl::StartReadWrite() {
  SuperBlock* super = super_block();
  if (!(context_.planted.recover_flag_not_set)) {
    super->s_feature_incompat = super->s_feature_incompat | kIncompatRecover;
  }
  super->s_mnt_count = static_cast<uint16_t>(super->s_mnt_count + 1);
  super->s_mtime = static_cast<uint32_t>(TimeOfDay().tv_sec);
  ELIDEFS_RETURN_IF_ERROR(WriteSuperBlock(nullptr));
  // E11: a predecessor that was killed may have left writes in the device's cache, about which this ledger knows
  // nothing. The same flush makes needs_recovery durable before the journal says that it has a log: e2fsck -p stops at
  // one without the flag. The journal's superblock is covered by the PRE of the first commit.
  if (!context_.planted.no_flush_at_mount) {
    if (context_.queue->ledger().FlushUnconditionally() != 0) {
      return ErrnoError(EIO, absl::StrCat(device_->name(), ": the first flush failed; check the device"));
    }
  }
  ELIDEFS_RETURN_IF_ERROR(context_.journal->StartWriting());
  started_read_write_ = true;
  return absl::OkStatus();
}

absl::Status VolumeImpl::ProcessOrphans() {
  ELIDEFS_ASSIGN_OR_RETURN(const std::vector<InodeNumber> numbers, orphans_->ReadFromDisk());
  if (numbers.empty()) return absl::OkStatus();
  std::vector<InodeRef> inodes;
  for (const InodeNumber number : numbers) {
    ELIDEFS_ASSIGN_OR_RETURN(InodeRef inode, inode_cache_->GetOrphan(number));
    inodes.push_back(std::move(inode));
  }
  orphans_->Adopt(inodes);
  uint32_t deleted = 0;
  for (const InodeRef& inode : inodes) {
    bool unlinked = false;
    {
      MutexLock lock(inode->mutex);
      unlinked = inode->links == 0;
      if (OwnsBlocksWithoutExtents(*inode, context_.geometry)) {
        context_.logger.Warning(
            absl::StrCat("orphan inode ", inode->number, " is block-mapped (ext3): left to e2fsck"));
        continue;
      }
      if (!unlinked) ELIDEFS_RETURN_IF_ERROR(FinishTruncate(inode));
    }
    if (unlinked) {
      ++deleted;
      ELIDEFS_RETURN_IF_ERROR(DeleteUnused(inode));
    }
  }
  context_.logger.Info(absl::StrCat("orphans: ", deleted, " deleted, ", numbers.size() - deleted, " truncated"));
  return absl::OkStatus();
}

void VolumeImpl::FinishAllDeletions() {
  context_.workers->Drain();
  for (const InodeRef& inode : inode_cache_->Snapshot()) {
    data_path_->ReleaseWindow(inode);
    bool pending = false;
    {
      MutexLock lock(inode->mutex);
      pending = inode->links == 0 && !inode->deleted;
    }
    if (!pending) continue;
    // The user is gone with the unmount: lookups that were never given back count no more.
    inode->lookups.store(0, std::memory_order_release);
    // An inode that cannot be deleted stays on the orphan list for the next mount.
    if (const absl::Status status = DeleteUnused(inode); !status.ok()) {
      context_.logger.Error(absl::StrCat("deleting inode ", inode->number, ": ", std::string(status.message())));
    }
  }
}

absl::Status VolumeImpl::Close() {
  if (closed_) return absl::OkStatus();
  closed_ = true;
  if (!started_read_write_) return absl::OkStatus();
  data_path_->Drain();
  if (!context_.journal->aborted()) {
    FinishAllDeletions();
    // What fails here must not keep the rest from being committed.
    if (const absl::Status status = dirty_times_->WriteAll(); !status.ok()) {
      context_.logger.Error(absl::StrCat("writing timestamps at unmount: ", std::string(status.message())));
    }
  }
  ELIDEFS_RETURN_IF_ERROR(context_.journal->Shutdown());
  // s_start = 0 is durable: now, and not before, needs_recovery may go.
  SuperBlock* super = super_block();
  super->s_feature_incompat = super->s_feature_incompat & ~static_cast<uint32_t>(kIncompatRecover);
  super->s_state = static_cast<uint16_t>(super->s_state | kStateValid | (damage_seen_ ? kStateErrors : 0));
  super->s_wtime = static_cast<uint32_t>(TimeOfDay().tv_sec);
  const uint64_t free_blocks = context_.blocks->free_blocks();
  super->s_free_blocks_count_lo = static_cast<uint32_t>(free_blocks);
  if (context_.geometry.has_64bit()) super->s_free_blocks_count_hi = static_cast<uint32_t>(free_blocks >> 32U);
  super->s_free_inodes_count = static_cast<uint32_t>(context_.inodes->free_inodes());
  blockio::Ticket need = blockio::kNoNeed;
  ELIDEFS_RETURN_IF_ERROR(WriteSuperBlock(&need));
  if (context_.queue->ledger().AwaitBlocking(need, nullptr) != 0) {
    return ErrnoError(EIO, absl::StrCat(device_->name(), ": the last flush failed; run e2fsck"));
  }
  return absl::OkStatus();
}

VolumeImpl::~VolumeImpl() {
  if (context_.workers == nullptr) return;
  if (const absl::Status status = Close(); !status.ok()) {
    context_.logger.Error(absl::StrCat("close: ", std::string(status.message())));
  }
  // No task may outlive what it uses: the journal stops calling first, then the tasks end, then the parts go.
  if (data_path_ != nullptr) data_path_->Drain();
  context_.workers->Drain();
  context_.journal.reset();
  context_.workers.reset();
}

}  // namespace elidefs::core
