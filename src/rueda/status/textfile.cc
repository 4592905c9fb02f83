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

bool write_whole(const std::string& path, const std::string& text) {
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

void write_textfile(const std::string& path, Rank rank, const std::string& text) {
  const std::string file = textfile_path(path, rank);
  const std::string draft = file + ".new";
  if (write_whole(draft, text) && std::rename(draft.c_str(), file.c_str()) == 0) return;
  const int error = errno;
  unlink(draft.c_str());
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true))
    RUEDA_LOG(kWarning, "cannot write the metrics to " + file + ": " + std::strerror(error) +
                            "; check RUEDA_METRICS_TEXTFILE.");
}

}  // namespace rueda::status
