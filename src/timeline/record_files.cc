#include "timeline/record_files.h"

#include <filesystem>

namespace rueda::timeline {

namespace fs = std::filesystem;

std::vector<std::string> record_files_of(const std::string& argument) {
  const fs::path path(argument);
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const fs::path folder = is_folder ? path : (path.has_parent_path() ? path.parent_path() : fs::path("."));
  const std::string prefix = is_folder ? std::string() : path.filename().string() + ".rank";
  std::vector<std::string> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(kRecordSuffix)) found.push_back(entry->path().string());
  }
  return found;
}

}  // namespace rueda::timeline
