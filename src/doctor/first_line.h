// Files of /sys and /proc that hold one value.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace rueda::doctor {

// The first line of the file; empty if it cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace rueda::doctor
