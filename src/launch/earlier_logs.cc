#include "launch/earlier_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

namespace rueda::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 1'000'000;  // a bound for the search, not a limit that anyone meets

std::vector<fs::path> logs_in(const std::string& folder, std::error_code& error) {
  std::vector<fs::path> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;  // such an entry is no file
    if (is_log_name(entry->path().filename().native()) &&
        entry->symlink_status(gone).type() == fs::file_type::regular)
      found.push_back(entry->path());
  }
  const bool is_new = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (is_new) error.clear();
  return found;
}

// mkdir() succeeds for one job only, also if several start at once.
fs::path make_next_folder(const fs::path& folder, std::error_code& error) {
  for (int number = 1; number < kMostFolders; ++number) {
    fs::path path = folder / fmt::format("earlier-{}", number);
    if (mkdir(path.c_str(), 0755) == 0) return path;
    if (errno == EEXIST) continue;
    error = std::error_code(errno, std::generic_category());
    return path;
  }
  error = std::make_error_code(std::errc::file_exists);
  return folder / "earlier-N";
}

}  // namespace

bool is_log_name(std::string_view name) {
  constexpr std::string_view kStart = "rank-";
  constexpr size_t kLeastDigits = 4;
  const size_t dot = name.find('.');
  if (!name.starts_with(kStart) || dot == std::string_view::npos) return false;
  const std::string_view ending = name.substr(dot), digits = name.substr(kStart.size(), dot - kStart.size());
  if (ending != ".out" && ending != ".err" && ending != ".prom") return false;
  return digits.size() >= kLeastDigits &&
         std::ranges::all_of(digits, [](char c) { return '0' <= c && c <= '9'; });
}

Result<UniqueFd> hold_log_folder(const std::string& folder) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  UniqueFd held(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held.is_open() || flock(held.get(), LOCK_EX | LOCK_NB) == 0) return held;
  if (errno != EWOULDBLOCK) return UniqueFd();
  return Status(Code::kUnavailable,
                fmt::format("another job is writing its logs to {}; name another folder", folder));
}

Result<std::string> set_aside_logs(const std::string& folder) {
  std::error_code error;
  const std::vector<fs::path> logs = logs_in(folder, error);
  if (error)
    return Status(Code::kUnavailable,
                  fmt::format("cannot look for the logs of an earlier job in {}: {}; name another folder",
                              folder, error.message()));
  if (logs.empty()) return std::string();
  const fs::path target = make_next_folder(folder, error);
  for (const fs::path& log : logs)
    if (!error) fs::rename(log, target / log.filename(), error);
  if (!error) return target.string();
  return Status(Code::kUnavailable,
                fmt::format("cannot move the logs of an earlier job from {} to {}: {}; name another folder",
                            folder, target.string(), error.message()));
}

}  // namespace rueda::launch
