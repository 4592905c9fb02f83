#include "bench/temporary_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace rueda::bench {

Result<TemporaryFolder> TemporaryFolder::make(const std::string& name) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  std::string path = (place / (name + "-XXXXXX")).string();
  if (error || mkdtemp(path.data()) == nullptr)
    return Status(Code::kUnavailable, fmt::format("cannot make {}: {}; set TMPDIR to a writable directory",
                                                  path, std::strerror(errno)));
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace rueda::bench
