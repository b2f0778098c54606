#include "fuse/session.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "fuse/operations.h"

namespace elidefs::fuse {
namespace {

constexpr unsigned kMaxWriteBytes = 1U << 20U;  // the most FUSE can carry: 256 pages
constexpr unsigned kMaxReadaheadBytes = 1U << 20U;
constexpr unsigned kMaxBackground = 1024;  // read-ahead and asynchronous direct I/O in flight
// Never congested: while a mount is, the kernel silently skips writeback that nobody waits for, sync_file_range
// included, and the skipped files would each need flushes of their own later.
constexpr unsigned kCongestionThreshold = 65535;

void Init(void* user_data, fuse_conn_info* connection) {
  NegotiateConnection(static_cast<Daemon*>(user_data)->writeback_cache(), connection);
}

fuse_lowlevel_ops MakeOperations() {
  fuse_lowlevel_ops operations = {};
  operations.init = Init;
  AddAttributeOperations(&operations);
  AddNamespaceOperations(&operations);
  AddDirectoryOperations(&operations);
  AddDataOperations(&operations);
  return operations;
}

}  // namespace

void NegotiateConnection(bool writeback_cache, fuse_conn_info* connection) {
  // EXPLICIT_INVAL_DATA instead of AUTO_INVAL_DATA: the kernel keeps its pages when it sees another time or size, since
  // only its own calls cause those. ATOMIC_O_TRUNC is left out, so that truncation arrives as SETATTR; so is
  // HANDLE_KILLPRIV, so that the kernel clears set-user-id bits; so is splicing, since WriteAsync copies anyway.
  unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
                    FUSE_CAP_ASYNC_DIO | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_EXPLICIT_INVAL_DATA;
  if (writeback_cache) wanted |= FUSE_CAP_WRITEBACK_CACHE;
  connection->want = wanted & connection->capable;
  connection->max_write = kMaxWriteBytes;
  connection->max_readahead = kMaxReadaheadBytes;
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kCongestionThreshold;
  connection->time_gran = 1;
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(Daemon* daemon, const MountOptions& options,
                                                         const std::string& source) {
  std::string program = "elidefs";
  std::string flag = "-o";
  std::string value = MakeFuseOptions(options, source);
  char* arguments[] = {program.data(), flag.data(), value.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  const fuse_lowlevel_ops operations = MakeOperations();
  fuse_session* session = fuse_session_new(&args, &operations, sizeof(operations), daemon);
  fuse_opt_free_args(&args);
  if (session == nullptr) return ErrnoError(EINVAL, absl::StrCat("libfuse refuses the options ", value));
  daemon->SetSession(session);
  return std::unique_ptr<Session>(new Session(session, options.max_threads));
}

Session::~Session() {
  if (mounted_) fuse_session_unmount(session_);
  fuse_session_destroy(session_);
}

absl::Status Session::Mount(const std::string& mountpoint) {
  if (fuse_session_mount(session_, mountpoint.c_str()) != 0) {
    return ErrnoError(EIO, absl::StrCat("cannot mount on ", mountpoint,
                                        "; libfuse says why above (is /dev/fuse there, may this user mount?)"));
  }
  mounted_ = true;
  return absl::OkStatus();
}

absl::Status Session::Run() {
  fuse_loop_config* config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(config, 0);
  fuse_loop_cfg_set_max_threads(config, max_threads_);
  fuse_loop_cfg_set_idle_threads(config, max_threads_);  // no thread ends for being idle
  const int result = fuse_session_loop_mt(session_, config);
  fuse_loop_cfg_destroy(config);
  if (result == 0) return absl::OkStatus();
  const int error = result < 0 ? -result : EINTR;
  return ErrnoError(error, absl::StrCat("the FUSE session ended: ", strerror(error)));
}

}  // namespace elidefs::fuse
