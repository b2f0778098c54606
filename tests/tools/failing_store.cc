// A filesystem of one image file whose flushes and writes fail on command: the device below a volume under test.
//
// usage: failing_store IMAGE MOUNTPOINT. Serves MOUNTPOINT/image and MOUNTPOINT/control in the foreground until it is
// unmounted. Like a disk with a volatile cache it keeps writes in memory until an fsync, which moves them to IMAGE;
// what no fsync has moved is gone when the program ends. Reading `control` gives counters, writing to it one of
//
//   fail_flush N SKIP [drop]  SKIP more fsyncs succeed, N then answer EIO; with `drop` these lose what the cache holds
//
//   fail_write N [TEXT]       the next N writes (that contain TEXT) answer EIO and change nothing
//
//   ok                        nothing fails from here on
//
//   power_cut                 loses what no fsync has moved
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t kBlockBytes = 4096;
constexpr fuse_ino_t kImage = 2;
constexpr fuse_ino_t kControl = 3;
constexpr double kForever = 86400;

// One thread serves all requests, so nothing here is locked.
struct Store {
  int fd = -1;
  uint64_t size_bytes = 0;
  std::unordered_map<uint64_t, std::array<char, kBlockBytes>> cache;  // by block number
  uint64_t flushes_to_fail = 0;
  uint64_t flushes_to_skip = 0;
  bool drop = false;
  uint64_t writes_to_fail = 0;
  std::string fail_text;
  uint64_t flushes = 0, failed_flushes = 0, failed_writes = 0;

  bool ReadBlock(uint64_t number, char* data) const {
    if (const auto cached = cache.find(number); cached != cache.end()) {
      std::memcpy(data, cached->second.data(), kBlockBytes);
      return true;
    }
    return pread(fd, data, kBlockBytes, static_cast<off_t>(number * kBlockBytes)) == static_cast<ssize_t>(kBlockBytes);
  }

  int Read(char* data, size_t size, uint64_t offset) const {
    std::array<char, kBlockBytes> block;
    for (size_t done = 0; done < size;) {
      const size_t start = (offset + done) % kBlockBytes;
      const size_t length = std::min(kBlockBytes - start, size - done);
      if (!ReadBlock((offset + done) / kBlockBytes, block.data())) return EIO;
      std::memcpy(data + done, block.data() + start, length);
      done += length;
    }
    return 0;
  }

  int Write(const char* data, size_t size, uint64_t offset) {
    if (offset + size > size_bytes) return ENOSPC;
    if (writes_to_fail > 0 && memmem(data, size, fail_text.data(), fail_text.size()) != nullptr) {
      --writes_to_fail;
      ++failed_writes;
      return EIO;
    }
    for (size_t done = 0; done < size;) {
      const uint64_t number = (offset + done) / kBlockBytes;
      const size_t start = (offset + done) % kBlockBytes;
      const size_t length = std::min(kBlockBytes - start, size - done);
      const auto [block, is_new] = cache.try_emplace(number);
      if (is_new && length < kBlockBytes &&
          pread(fd, block->second.data(), kBlockBytes, static_cast<off_t>(number * kBlockBytes)) < 0) {
        return EIO;
      }
      std::memcpy(block->second.data() + start, data + done, length);
      done += length;
    }
    return 0;
  }

  int Flush() {
    ++flushes;
    if (flushes_to_skip > 0) {
      --flushes_to_skip;
    } else if (flushes_to_fail > 0) {
      --flushes_to_fail;
      ++failed_flushes;
      if (drop) cache.clear();
      return EIO;
    }
    for (const auto& [number, block] : cache) {
      if (pwrite(fd, block.data(), kBlockBytes, static_cast<off_t>(number * kBlockBytes)) < 0) return EIO;
    }
    cache.clear();
    return 0;
  }

  bool Command(const std::string& text) {
    std::istringstream words(text);
    std::string name, argument;
    uint64_t count = 0;
    words >> name;
    if (name == "power_cut") {
      cache.clear();
      return true;
    }
    if (name == "ok") {
      flushes_to_fail = flushes_to_skip = writes_to_fail = 0;
      return true;
    }
    if (!(words >> count)) return false;
    if (name == "fail_flush") {
      flushes_to_fail = count;
      flushes_to_skip = 0;
      words >> flushes_to_skip >> argument;
      drop = argument == "drop";
      return drop || argument.empty();
    }
    words >> argument;
    writes_to_fail = count;
    fail_text = argument;
    return name == "fail_write";
  }

  std::string Report() const {
    std::ostringstream text;
    text << "flushes " << flushes << "\nfailed_flushes " << failed_flushes << "\nfailed_writes " << failed_writes
         << "\ncached_blocks " << cache.size() << "\n";
    return text.str();
  }
};

Store& StoreOf(fuse_req_t request) {
  return *static_cast<Store*>(fuse_req_userdata(request));
}

struct stat Attributes(const Store& store, fuse_ino_t node) {
  struct stat attributes {};
  attributes.st_ino = node;
  attributes.st_nlink = 1;
  attributes.st_mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755U : S_IFREG | 0600U;
  attributes.st_size = node == kImage ? static_cast<off_t>(store.size_bytes) : 0;
  attributes.st_blksize = kBlockBytes;
  return attributes;
}

void Lookup(fuse_req_t request, fuse_ino_t /*parent*/, const char* name) {
  fuse_entry_param entry{};
  if (std::strcmp(name, "image") == 0) entry.ino = kImage;
  if (std::strcmp(name, "control") == 0) entry.ino = kControl;
  if (entry.ino == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  entry.attr = Attributes(StoreOf(request), entry.ino);
  entry.attr_timeout = entry.entry_timeout = kForever;
  fuse_reply_entry(request, &entry);
}

void GetAttributes(fuse_req_t request, fuse_ino_t node, fuse_file_info* /*file*/) {
  const struct stat attributes = Attributes(StoreOf(request), node);
  fuse_reply_attr(request, &attributes, kForever);
}

// A truncating open of `control` arrives as this; nothing can be changed.
void SetAttributes(fuse_req_t request, fuse_ino_t node, struct stat* /*attributes*/, int /*which*/,
                   fuse_file_info* file) {
  GetAttributes(request, node, file);
}

// Without the kernel's page cache, so that each request of the layer above arrives as it is.
void Open(fuse_req_t request, fuse_ino_t /*node*/, fuse_file_info* file) {
  file->direct_io = 1;
  fuse_reply_open(request, file);
}

void Read(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* /*file*/) {
  const Store& store = StoreOf(request);
  const std::string report = store.Report();
  const auto first = static_cast<uint64_t>(offset);
  const uint64_t end = node == kImage ? store.size_bytes : report.size();
  std::vector<char> data(first < end ? std::min<uint64_t>(size, end - first) : 0);
  int error = 0;
  if (node == kImage) {
    error = store.Read(data.data(), data.size(), first);
  } else if (!data.empty()) {
    std::memcpy(data.data(), report.data() + first, data.size());
  }
  if (error != 0) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_buf(request, data.data(), data.size());
  }
}

void Write(fuse_req_t request, fuse_ino_t node, const char* data, size_t size, off_t offset, fuse_file_info* /*file*/) {
  Store& store = StoreOf(request);
  int error = 0;
  if (node == kImage) {
    error = store.Write(data, size, static_cast<uint64_t>(offset));
  } else if (!store.Command(std::string(data, size))) {
    error = EINVAL;
  }
  if (error != 0) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_write(request, size);
  }
}

void Sync(fuse_req_t request, fuse_ino_t node, int /*data_only*/, fuse_file_info* /*file*/) {
  fuse_reply_err(request, node == kImage ? StoreOf(request).Flush() : 0);
}

int Serve(Store* store, const char* program, const char* mountpoint) {
  fuse_lowlevel_ops operations{};
  operations.lookup = Lookup;
  operations.getattr = GetAttributes;
  operations.setattr = SetAttributes;
  operations.open = Open;
  operations.read = Read;
  operations.write = Write;
  operations.fsync = Sync;
  std::string name = program, flag = "-o", options = "subtype=failing_store,fsname=failing_store";
  char* arguments[] = {name.data(), flag.data(), options.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  fuse_session* session = fuse_session_new(&args, &operations, sizeof(operations), store);
  fuse_opt_free_args(&args);
  if (session == nullptr || fuse_session_mount(session, mountpoint) != 0) return 1;
  const int result = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return result == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: failing_store IMAGE MOUNTPOINT\n", stderr);
    return 2;
  }
  Store store;
  struct stat attributes {};
  store.fd = open(argv[1], O_RDWR | O_CLOEXEC);
  if (store.fd < 0 || fstat(store.fd, &attributes) != 0) {
    std::perror(argv[1]);
    return 1;
  }
  store.size_bytes = static_cast<uint64_t>(attributes.st_size) / kBlockBytes * kBlockBytes;
  return Serve(&store, argv[0], argv[2]);
}
