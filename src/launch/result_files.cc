#include "launch/result_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "rueda/base/unique_fd.h"

namespace rueda::launch {

Status ResultFiles::append(Rank rank, std::span<const std::byte> bytes) const {
  if (dir_.empty()) return Status::ok();
  const std::string path = fmt::format("{}/result.{}", dir_, rank);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const ssize_t written = write(file.get(), bytes.data(), bytes.size());
  if (written == std::ssize(bytes)) return Status::ok();
  return {Code::kUnavailable, fmt::format("cannot write {}: {}", path, std::strerror(errno))};
}

void ResultFiles::write_failure(const Ending& cause) const {
  if (!dir_.empty()) std::ofstream(dir_ + "/failure") << cause.rank << ' ' << exit_status(cause);
}

void ResultFiles::write_verdict(const std::string& why) const {
  if (!dir_.empty()) std::ofstream(dir_ + "/verdict") << why << '\n';
}

void ResultFiles::clear() const {
  std::error_code ignored;
  if (dir_.empty()) return;
  for (const char* name : {"/failure", "/verdict"}) std::filesystem::remove(dir_ + name, ignored);
  for (const auto& entry : std::filesystem::directory_iterator(dir_, ignored))
    if (entry.path().filename().string().starts_with("result.")) std::filesystem::remove(entry, ignored);
}

void ResultFiles::remove() const {
  const std::filesystem::path results(dir_);
  std::error_code ignored;
  if (results.filename().string().starts_with("rueda-run-")) std::filesystem::remove_all(results, ignored);
}

}  // namespace rueda::launch
