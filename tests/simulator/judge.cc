#include "tests/simulator/judge.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "tests/simulator/oracles.h"
#include "tests/simulator/verdict.h"

namespace elidefs::simulator {
namespace {

using Cut = blockio::VolatileCacheDevice::Cut;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostQueuedJobs = 6;         // bounds memory: each holds an image
constexpr uint64_t kSeedsPerRound = 1000000;  // more than a recording has events

const char* NameOf(Cut mode) {
  return mode == Cut::kDropAll ? "drop-all" : mode == Cut::kKeepAll ? "keep-all" : "random";
}

// One image and all the cuts that leave it.
struct Job {
  Cut mode = Cut::kDropAll;
  std::vector<uint8_t> image;
  std::vector<size_t> events;
  bool all_steps = false;
};

// For those who want to look at it: ELIDEFS_CRASH_KEEP names a folder for the images that violate something.
void KeepImage(const Job& job) {
  const char* folder = std::getenv("ELIDEFS_CRASH_KEEP");
  if (folder == nullptr) return;
  const std::string name = absl::StrCat(folder, "/", NameOf(job.mode), "-", job.events.front(), ".img");
  std::ofstream(name, std::ios::binary)
      .write(reinterpret_cast<const char*>(job.image.data()), static_cast<std::streamsize>(job.image.size()));
}

// Mounts with elidefs on a copy, compares at every cut, unmounts, asks e2fsck.
class ImageJudge {
 public:
  ImageJudge(const Recording& recording, const std::vector<std::vector<Progress>>& progress,
             const JudgeOptions& options)
      : recording_(recording), progress_(progress), options_(options) {}

  // Violations, each with its cut.
  std::vector<std::string> JudgeImage(const Job& job) const;
  bool with_kernel() const { return with_kernel_; }

 private:
  std::string MountAndCheck(const Job& job, Trees* trees) const;
  std::string Compare(const Trees& trees, size_t event) const;
  std::string OtherSteps(const Job& job) const;

  const Recording& recording_;
  const std::vector<std::vector<Progress>>& progress_;
  const JudgeOptions& options_;
  const bool with_kernel_ = CanMount();
};

std::vector<std::string> ImageJudge::JudgeImage(const Job& job) const {
  std::vector<std::string> violations;
  const auto report = [&](size_t event, const std::string& problem) {
    violations.push_back(absl::StrCat("cut before event ", event, " of ", recording_.device().event_count(), ", ",
                                      NameOf(job.mode), ": ", problem));
  };
  Trees trees;
  const std::string problem = MountAndCheck(job, &trees);
  if (!problem.empty()) report(job.events.front(), problem);
  if (!trees.empty()) {
    for (const size_t event : job.events) {
      const std::string difference = Compare(trees, event);
      if (difference.empty()) continue;
      report(event, absl::StrCat("elidefs reads: ", difference));
      break;
    }
  }
  if (job.all_steps && violations.empty()) {
    const std::string other = OtherSteps(job);
    if (!other.empty()) report(job.events.back(), other);
  }
  return violations;
}

std::string ImageJudge::MountAndCheck(const Job& job, Trees* trees) const {
  const std::unique_ptr<blockio::MemoryDevice> memory = blockio::MemoryDevice::FromBytes(job.image, {});
  const std::unique_ptr<Connection> connection = Connection::To(memory.get());
  VolumeOptions mount_options = RigOptions::QuietOptions();
  mount_options.read_only = options_.allow_read_only;
  absl::StatusOr<std::unique_ptr<Volume>> volume = Volume::Open(connection->TakeDevice(), mount_options);
  if (!volume.ok()) return absl::StrCat("mount: ", volume.status().ToString());
  if ((*volume)->read_only() && !options_.allow_read_only)
    return absl::StrCat("mounted read-only: ", (*volume)->Stats().read_only_reason);
  if (job.events.back() >= recording_.first_event()) *trees = ReadTrees(recording_, volume->get());
  const absl::Status closed = (*volume)->Close();
  volume->reset();
  if (!closed.ok()) return absl::StrCat("unmount: ", closed.ToString());
  if (!options_.check_with_e2fsck) return "";
  const std::string complaint = CheckWithE2fsck(ImageFile(memory->bytes()));
  return complaint.empty() ? "" : absl::StrCat("after mount and unmount: ", complaint);
}

std::string ImageJudge::Compare(const Trees& trees, size_t event) const {
  return event < recording_.first_event() ? "" : CompareTrees(recording_, trees, progress_[event]);
}

std::string ImageJudge::OtherSteps(const Job& job) const {
  const std::string problem = CompareRecoveries(job.image);
  if (!problem.empty() || !with_kernel_ || job.events.back() < recording_.first_event()) return problem;
  const std::string difference = Compare(ReadTreesWithKernel(recording_, job.image), job.events.back());
  return difference.empty() ? "" : absl::StrCat("the kernel reads: ", difference);
}

// Produces the distinct images in the order of events and lets worker threads judge them.
class JudgeRun {
 public:
  JudgeRun(const Recording& recording, const JudgeOptions& options)
      : recording_(recording),
        options_(options),
        progress_(recording.ProgressByEvent()),
        judge_(recording, progress_, options) {}

  JudgeReport Run() {
    const auto start = Clock::now();
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < options_.threads; ++i) workers.emplace_back([this] { Work(); });
    if (options_.drop_all) Produce(Cut::kDropAll, 0);
    if (options_.keep_all) Produce(Cut::kKeepAll, 0);
    for (uint32_t round = 0; round < options_.random_per_cut; ++round) {
      Produce(Cut::kRandom, options_.seed + uint64_t{round} * kSeedsPerRound);
    }
    {
      MutexLock lock(mutex_);
      finished_ = true;
    }
    changed_.NotifyAll();
    for (std::thread& worker : workers) worker.join();
    MutexLock lock(mutex_);
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (judge_.with_kernel()) report_.with_kernel = report_.with_all_steps;
    return report_;
  }

 private:
  // Whether the image before `index` + 1 can differ from the one before `index`.
  bool ChangesImage(size_t index, Cut mode) const {
    const blockio::DeviceEvent& event = recording_.device().event(index);
    if (event.kind == blockio::DeviceEvent::Kind::kMark) return false;
    if (mode == Cut::kKeepAll) return event.kind == blockio::DeviceEvent::Kind::kWriteSubmitted;
    return mode == Cut::kRandom || event.kind == blockio::DeviceEvent::Kind::kFlushCompleted ||
           event.kind == blockio::DeviceEvent::Kind::kWriteCompleted;
  }

  void Produce(Cut mode, uint64_t seed) {
    std::optional<Job> job;
    std::vector<uint8_t> image;
    bool stale = true;
    const size_t count = recording_.device().event_count();
    for (size_t index = 0; index <= count; ++index) {
      if (index >= options_.first_event && (index % options_.event_step == 0 || index == count)) {
        if (stale) {
          recording_.device().ImageAfterCutInto(index, mode, seed + index, &image);
          stale = false;
          if (!job.has_value() || job->image != image) {
            if (job.has_value() && !Push(*std::move(job))) return;
            job = Job{.mode = mode, .image = image};
          }
        }
        job->events.push_back(index);
      }
      if (index < count && ChangesImage(index, mode)) stale = true;
    }
    if (job.has_value()) (void)Push(*std::move(job));
  }

  // False when enough violations were found.
  bool Push(Job job) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    report_.cuts += job.events.size();
    job.all_steps = options_.all_steps_every != 0 && report_.images % options_.all_steps_every == 0;
    ++report_.images;
    if (job.all_steps) ++report_.with_all_steps;
    while (jobs_.size() >= kMostQueuedJobs) changed_.Wait(mutex_);
    if (report_.violations.size() >= options_.most_violations) return false;
    jobs_.push_back(std::move(job));
    changed_.NotifyAll();
    return true;
  }

  void Work() ABSL_LOCKS_EXCLUDED(mutex_) {
    mutex_.Lock();
    while (true) {
      while (jobs_.empty() && !finished_) changed_.Wait(mutex_);
      if (jobs_.empty()) break;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      const bool enough = report_.violations.size() >= options_.most_violations;
      changed_.NotifyAll();
      if (enough) continue;
      mutex_.Unlock();
      std::vector<std::string> violations = judge_.JudgeImage(job);
      if (!violations.empty()) KeepImage(job);
      mutex_.Lock();
      for (std::string& violation : violations) report_.violations.push_back(std::move(violation));
    }
    mutex_.Unlock();
  }

  const Recording& recording_;
  const JudgeOptions options_;
  const std::vector<std::vector<Progress>> progress_;
  const ImageJudge judge_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  JudgeReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string JudgeReport::Summary() const {
  std::string text = absl::StrCat(cuts, " cuts, ", images, " distinct images, ", with_all_steps, " through all steps (",
                                  with_kernel, " by the kernel), ", violations.size(), " violations, ", seconds, " s");
  for (const std::string& violation : violations) absl::StrAppend(&text, "\n  ", violation);
  return text;
}

JudgeReport Judge(const Recording& recording, const JudgeOptions& options) {
  return JudgeRun(recording, options).Run();
}

}  // namespace elidefs::simulator
