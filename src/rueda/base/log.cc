#include "rueda/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <set>
#include <string>

namespace rueda {
namespace {

// One per process, because the log records of all threads go to the same two descriptors.
std::atomic<LogLevel> g_level{LogLevel::kWarning};
std::atomic<int> g_rank{-1};
std::atomic<bool> g_hide_time{false};

struct Texts {
  std::mutex mutex;
  std::set<std::string, std::less<>> known;
};

std::string time_text() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  std::array<char, 64> text{};
  const size_t used = strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(text.data() + used, text.size() - used, ".%06ld: ", now.tv_nsec / 1000);
  return text.data();
}

}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
void set_log_rank(int rank) { g_rank = rank; }
void set_log_hide_time(bool hide_time) { g_hide_time = hide_time; }
LogLevel log_level() { return g_level; }

bool is_new_in_log(std::string_view text) {
  constexpr size_t kMost = 100;
  static Texts* const texts = new Texts;  // never destroyed: threads may log at the very end
  const std::lock_guard lock(texts->mutex);
  if (texts->known.contains(text)) return false;
  if (texts->known.size() < kMost) texts->known.emplace(text);
  return true;
}

void log_record(LogLevel level, const char* file, int line, std::string_view text) {
  const char* base = std::strrchr(file, '/');
  std::string record = "[";
  if (!g_hide_time) record += time_text();
  record += "TDIWEF"[static_cast<int>(level)];
  record += ' ';
  record += base != nullptr ? base + 1 : file;
  record += ':' + std::to_string(line) + "]";
  if (const int rank = g_rank; rank >= 0) record += " [" + std::to_string(rank) + "]";
  record += ": ";
  record += text;
  record += '\n';
  // A single write, so that the records of ranks that share a terminal do not mix.
  const int fd = level <= LogLevel::kInfo ? STDOUT_FILENO : STDERR_FILENO;
  [[maybe_unused]] const ssize_t written = write(fd, record.data(), record.size());
}

}  // namespace rueda
