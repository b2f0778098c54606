#include "tests/unit/core/journal/crash_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/ondisk/journal_layout.h"

namespace elidefs::core {
namespace {

using blockio::MemoryDevice;
using blockio::VolatileCacheDevice;
using Cut = VolatileCacheDevice::Cut;

struct MarkingWaiter {
  CommitWaiter waiter;
  VolatileCacheDevice* device = nullptr;
  uint32_t number = 0;
  static void Done(CommitWaiter* waiter) {
    auto* self = static_cast<MarkingWaiter*>(waiter->context);
    if (waiter->error == 0) self->device->Mark(self->number);
  }
};

constexpr size_t kOrderedArea = 200;  // free blocks from here on hold the ordered data, one per transaction

}  // namespace

CrashModel::CrashModel(const TestVolume& volume, const CrashHistoryOptions& options)
    : volume_(volume), options_(options) {
  device_ = VolatileCacheDevice::Create(volume.bytes,
                                        {.native_fua = options.native_fua, .reorder_seed = options.seed + 1000});
  version_.push_back(std::vector<uint32_t>(options.working_set_blocks, 0));
}

std::vector<uint8_t> CrashModel::Content(uint32_t version, BlockNumber block) const {
  if (version == 0) return BlockOf(volume_.bytes, volume_, block);
  std::vector<uint8_t> bytes(volume_.geometry.block_bytes);
  uint64_t word = (uint64_t{version} << 32U) + block;
  for (size_t offset = 0; offset < bytes.size(); offset += sizeof(word)) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + offset, &word, sizeof(word));
  }
  if (options_.magic_content && (version + block) % 2 == 0) {
    const Be32 magic = kJournalMagic;
    std::memcpy(bytes.data(), &magic, sizeof(magic));
  }
  return bytes;
}

void CrashModel::RunHistory() {
  std::deque<MarkingWaiter> waiters;
  JournalOptions journal_options;
  journal_options.planted = options_.planted;
  Stack stack(device_.get(), volume_, journal_options);
  stack.Mount();
  std::mt19937 random(options_.seed);
  const uint32_t block_bytes = volume_.geometry.block_bytes;
  std::vector<uint8_t> memory(block_bytes + 4096);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) & ~uintptr_t{4095});
  for (uint32_t number = 1; number <= options_.transactions; ++number) {
    version_.push_back(version_.back());
    const BlockNumber ordered = volume_.free_blocks[kOrderedArea + number % 150];
    std::memcpy(aligned, Content(number, ordered).data(), block_bytes);
    blockio::Ticket need = blockio::kNoNeed;
    EXPECT_EQ(stack.queue->Write(ordered * block_bytes, aligned, block_bytes, &need), 0);
    TransactionId id = 0;
    {
      auto handle = stack.journal->Start(options_.blocks_per_transaction);
      if (!handle.ok()) {
        ADD_FAILURE() << handle.status();
        return;
      }
      for (uint32_t i = 0; i < options_.blocks_per_transaction; ++i) {
        const uint32_t index = random() % options_.working_set_blocks;
        const BlockNumber block = volume_.free_blocks[index];
        auto buffer = stack.cache->Read(block, nullptr);
        EXPECT_TRUE(buffer.ok());
        handle->Dirty(*buffer);
        std::memcpy((*buffer)->data(), Content(number, block).data(), block_bytes);
        version_.back()[index] = number;
      }
      handle->OrderAfter(need);
      id = handle->transaction();
    }
    waiters.emplace_back();
    MarkingWaiter& marking = waiters.back();
    marking.device = device_.get();
    marking.number = number;
    marking.waiter.transaction = id;
    marking.waiter.context = &marking;
    marking.waiter.done = &MarkingWaiter::Done;
    if (stack.journal->Commit(&marking.waiter) == CommitOutcome::kDurable) device_->Mark(number);
    if (random() % options_.wait_every == 0) {
      EXPECT_EQ(stack.journal->CommitBlocking(id, nullptr), 0);
    }
  }
  EXPECT_EQ(stack.journal->CommitBlocking(stack.journal->Newest(), nullptr), 0);
}

std::string CrashModel::CheckCut(size_t index, Cut mode, uint64_t seed) const {
  uint32_t acknowledged = 0;
  for (size_t i = 0; i < index; ++i) {
    const blockio::DeviceEvent& event = device_->event(i);
    if (event.kind == blockio::DeviceEvent::Kind::kMark) {
      acknowledged = std::max(acknowledged, static_cast<uint32_t>(event.id));
    }
  }
  auto device = MemoryDevice::FromBytes(device_->ImageAfterCut(index, mode, seed), {.volatile_cache = true});
  Stack stack(device.get(), volume_);
  if (!stack.open_status.ok()) return std::string(stack.open_status.message());
  const auto result = stack.journal->Recover(nullptr);
  if (!result.ok()) return std::string(result.status().message());
  // One version of the whole working set, not older than what was acknowledged.
  std::string why = "no version fits";
  for (uint32_t number = acknowledged; number < version_.size(); ++number) {
    bool fits = true;
    for (uint32_t i = 0; i < options_.working_set_blocks && fits; ++i) {
      const BlockNumber block = volume_.free_blocks[i];
      fits = BlockOf(device->bytes(), volume_, block) == Content(version_[number][i], block);
    }
    if (!fits) continue;
    // Ordered data of this version; later writes may have replaced that of older ones only.
    if (number > 0) {
      const BlockNumber ordered = volume_.free_blocks[kOrderedArea + number % 150];
      if (BlockOf(device->bytes(), volume_, ordered) != Content(number, ordered)) {
        why = absl::StrCat("ordered data of ", number, " is missing");
        continue;
      }
    }
    return "";
  }
  return absl::StrCat("cut before event ", index, ", acknowledged ", acknowledged, ": ", why);
}

uint32_t CrashModel::CountViolations(size_t step, std::string* first) const {
  uint32_t violations = 0;
  for (size_t index = 0; index <= event_count(); index += step) {
    for (const Cut mode : {Cut::kDropAll, Cut::kKeepAll, Cut::kRandom, Cut::kRandom}) {
      const std::string wrong = CheckCut(index, mode, index * 31 + violations + 7);
      if (wrong.empty()) continue;
      if (violations++ == 0) *first = wrong;
    }
  }
  return violations;
}

}  // namespace elidefs::core
