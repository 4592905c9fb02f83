// Files of /sys and /proc that hold one value, and the folders that hold them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rueda::doctor {

// The first line of the file; empty if it cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// What the folder holds, by name; empty if it cannot be read.
inline std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

}  // namespace rueda::doctor
