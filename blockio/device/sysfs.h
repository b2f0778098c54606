// Reading sysfs: small files of one line, and folders.
#pragma once

#include <dirent.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elidefs::blockio {

inline std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

// Without hidden names; empty if there is no such folder.
inline std::vector<std::string> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), &closedir);
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

// The folder of the whole disk: a partition's queue limits are its parent's.
inline std::string DiskFolder(dev_t device) {
  std::string folder = absl::StrCat("/sys/dev/block/", major(device), ":", minor(device));
  if (access(absl::StrCat(folder, "/partition").c_str(), F_OK) == 0) absl::StrAppend(&folder, "/..");
  return folder;
}

}  // namespace elidefs::blockio
