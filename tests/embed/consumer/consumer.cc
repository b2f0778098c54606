// An embedder in its smallest form: links the installed library and sees its errors. usage: consumer FOLDER
#include <cstdio>
#include <string>

#include "elidefs/block_device.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  // A folder is neither a file nor a block device, a missing name is neither: both must come back as errors.
  for (const std::string& path : {std::string(argv[1]), std::string(argv[1]) + "/missing"}) {
    const auto device = elidefs::OpenFileDevice(path, {});
    if (device.ok()) {
      std::fprintf(stderr, "consumer: %s was opened as a device\n", path.c_str());
      return 1;
    }
    std::printf("%s\n", device.status().ToString().c_str());
  }
  return 0;
}
