#include "fuse/control/stats_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fuse/control/json_writer.h"

namespace elidefs::fuse {
namespace {

void WriteSyncs(const VolumeStats::Syncs& syncs, JsonWriter* json) {
  json->BeginObject("syncs");
  json->Number("fdatasync_calls", syncs.fdatasync_calls);
  json->Number("fsync_calls", syncs.fsync_calls);
  json->Number("directory_calls", syncs.directory_calls);
  json->Number("o_sync_writes", syncs.o_sync_writes);
  json->Number("elided", syncs.elided);
  json->Number("joined_flush", syncs.joined_flush);
  json->Number("issued_flush", syncs.issued_flush);
  json->Number("joined_commit", syncs.joined_commit);
  json->Number("started_commit", syncs.started_commit);
  json->Number("failed", syncs.failed);
  json->End();
}

void WriteFlushes(const VolumeStats::Flushes& flushes, JsonWriter* json) {
  json->BeginObject("flushes");
  json->Number("requested", flushes.requested);
  json->Number("issued", flushes.issued);
  json->Number("elided", flushes.elided);
  json->Number("joined", flushes.joined);
  json->Number("failed", flushes.failed);
  json->Number("durable_ticket", flushes.durable_ticket);
  json->Boolean("device_has_volatile_cache", flushes.device_has_volatile_cache);
  json->Boolean("native_fua", flushes.native_fua);
  json->Boolean("leaf_failed", flushes.leaf_failed);
  json->End();
}

void WriteCommits(const VolumeStats::Commits& commits, JsonWriter* json) {
  json->BeginObject("commits");
  json->Number("commits", commits.commits);
  json->Number("pre_elided", commits.pre_elided);
  json->Number("pre_joined", commits.pre_joined);
  json->Number("pre_issued", commits.pre_issued);
  json->Number("post_elided", commits.post_elided);
  json->Number("post_joined", commits.post_joined);
  json->Number("post_issued", commits.post_issued);
  json->Number("post_fua", commits.post_fua);
  json->Number("logged_blocks", commits.logged_blocks);
  json->Number("revoked_blocks", commits.revoked_blocks);
  json->Number("checkpointed_blocks", commits.checkpointed_blocks);
  json->Number("log_blocks", commits.log_blocks);
  json->Number("log_blocks_used", commits.log_blocks_used);
  json->Number("running_transaction", commits.running_transaction);
  json->Number("durable_transaction", commits.durable_transaction);
  json->End();
}

void WriteQueues(const std::vector<VolumeStats::Queue>& queues, JsonWriter* json) {
  json->BeginArray("queues");
  for (const VolumeStats::Queue& queue : queues) {
    json->BeginObject();
    json->Number("depth", queue.depth);
    json->Number("in_flight", queue.in_flight);
    json->Number("dispatched", queue.dispatched);
    json->Number("completed", queue.completed);
    json->Number("flushes_submitted", queue.flushes_submitted);
    json->Number("flush_index", queue.flush_index);
    json->End();
  }
  json->End();
}

template <typename... Parts>
void Line(std::string* text, const char* label, const Parts&... parts) {
  absl::StrAppendFormat(text, "%-14s", label);
  absl::StrAppend(text, parts..., "\n");
}

// "12.5% " of `whole`, empty for nothing.
std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  return absl::StrFormat(" (%.1f%%)", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string State(const VolumeStats& stats, const MountDescription& mount) {
  std::string state = stats.read_only ? "read-only" : "writable";
  if (!stats.read_only_reason.empty()) absl::StrAppend(&state, ": ", stats.read_only_reason);
  absl::StrAppend(&state, mount.writeback_cache ? ", writeback_cache" : ", write-behind");
  return state;
}

}  // namespace

std::string FormatStatsJson(const VolumeStats& stats, const MountDescription& mount) {
  JsonWriter json;
  json.BeginObject();
  json.String("version", ELIDEFS_VERSION);
  json.String("source", mount.source);
  json.String("mountpoint", mount.mountpoint);
  json.Number("pid", static_cast<uint64_t>(mount.pid));
  json.Boolean("writeback_cache", mount.writeback_cache);
  json.Boolean("read_only", stats.read_only);
  json.String("read_only_reason", stats.read_only_reason);
  WriteSyncs(stats.syncs, &json);
  WriteFlushes(stats.flushes, &json);
  WriteCommits(stats.commits, &json);
  WriteQueues(stats.queues, &json);
  json.Number("read_bytes", stats.read_bytes);
  json.Number("written_bytes", stats.written_bytes);
  json.Number("device_errors", stats.device_errors);
  json.Number("cached_inodes", stats.cached_inodes);
  json.Number("write_behind_bytes_now", stats.write_behind_bytes_now);
  json.End();
  return json.text();
}

std::string FormatStatsText(const VolumeStats& stats, const MountDescription& mount) {
  std::string text;
  const VolumeStats::Syncs& syncs = stats.syncs;
  const VolumeStats::Flushes& flushes = stats.flushes;
  const VolumeStats::Commits& commits = stats.commits;
  const uint64_t calls = syncs.fdatasync_calls + syncs.fsync_calls + syncs.directory_calls + syncs.o_sync_writes;

  Line(&text, "volume", mount.source, " on ", mount.mountpoint, " (process ", mount.pid, ")");
  Line(&text, "state", State(stats, mount));
  Line(&text, "device cache", flushes.device_has_volatile_cache ? "volatile" : "none",
       flushes.native_fua ? ", native FUA" : "",
       flushes.leaf_failed ? ", FAILED: a flush failed; syncs of unproved files answer EIO until the next mount" : "");
  Line(&text, "sync calls", calls, ": ", syncs.fdatasync_calls, " fdatasync, ", syncs.fsync_calls, " fsync, ",
       syncs.directory_calls, " directory, ", syncs.o_sync_writes, " O_SYNC writes");
  Line(&text, "  elided", syncs.elided, Share(syncs.elided, calls));
  Line(&text, "  flush", syncs.joined_flush, " joined", Share(syncs.joined_flush, calls), ", ", syncs.issued_flush,
       " issued", Share(syncs.issued_flush, calls));
  Line(&text, "  commit", syncs.joined_commit, " joined, ", syncs.started_commit, " started");
  Line(&text, "  failed", syncs.failed);
  // The mount issues one of its own, and so does whoever asks for one unconditionally.
  Line(&text, "flushes", flushes.issued, " issued, ", flushes.failed, " failed; of ", flushes.requested, " needs ",
       flushes.requested - std::min(flushes.requested, flushes.joined + flushes.elided), " caused one, ",
       flushes.joined, " joined one, ", flushes.elided, " were met; durable up to ", flushes.durable_ticket);
  Line(&text, "commits", commits.commits, ": ", commits.logged_blocks, " blocks logged, ", commits.revoked_blocks,
       " revoked, ", commits.checkpointed_blocks, " checkpointed");
  Line(&text, "  before", commits.pre_issued, " flushes issued, ", commits.pre_joined, " joined, ", commits.pre_elided,
       " elided");
  Line(&text, "  after", commits.post_issued, " flushes issued, ", commits.post_joined, " joined, ",
       commits.post_elided, " elided, ", commits.post_fua, " FUA");
  Line(&text, "journal", commits.log_blocks_used, " of ", commits.log_blocks, " blocks used",
       Share(commits.log_blocks_used, commits.log_blocks), "; transaction ", commits.running_transaction, " running, ",
       commits.durable_transaction, " durable");
  for (size_t i = 0; i < stats.queues.size(); ++i) {
    const VolumeStats::Queue& queue = stats.queues[i];
    Line(&text, absl::StrCat("queue ", i).c_str(), queue.in_flight, " of ", queue.depth, " in flight, ",
         queue.dispatched, " dispatched, ", queue.flushes_submitted, " flushes, flush index ", queue.flush_index,
         queue.flush_index % 2 == 1 ? " (in flight)" : "");
  }
  Line(&text, "data", Bytes(stats.read_bytes), " read, ", Bytes(stats.written_bytes), " written, ",
       Bytes(stats.write_behind_bytes_now), " waiting to be written");
  Line(&text, "device errors", stats.device_errors);
  Line(&text, "inodes", stats.cached_inodes, " cached");
  return text;
}

}  // namespace elidefs::fuse
