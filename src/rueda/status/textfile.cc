#include "rueda/status/textfile.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "rueda/base/log.h"

namespace rueda::status {
namespace {

constexpr std::string_view kEnding = ".prom";

bool write_whole(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && is_written;
}

}  // namespace

std::string textfile_path(const std::string& path, Rank rank) {
  const std::string stem = path.ends_with(kEnding) ? path.substr(0, path.size() - kEnding.size()) : path;
  return stem + ".rank" + std::to_string(rank) + std::string(kEnding);
}

Status replace_file(const std::string& path, std::string_view text) {
  const std::string draft = path + ".new";
  if (write_whole(draft, text) && std::rename(draft.c_str(), path.c_str()) == 0) return Status::ok();
  const int error = errno;
  unlink(draft.c_str());
  return {Code::kUnavailable, "cannot write the metrics to " + path + ": " + std::strerror(error)};
}

void write_textfile(const std::string& path, Rank rank, const std::string& text) {
  const std::string file = textfile_path(path, rank);
  const Status written = replace_file(file, text);
  if (written.is_ok()) return;
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true)) RUEDA_LOG(kWarning, written.why + "; check RUEDA_METRICS_TEXTFILE.");
}

}  // namespace rueda::status
