#include "rueda/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>

#include "rueda/base/unique_fd.h"

namespace rueda {
namespace {

constexpr int kStateField = 3, kBeganField = 22;  // of /proc/PID/stat, counted from 1

// The first bytes of a file of /proc, or nothing.
std::string read_start(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  const ssize_t size = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  return {text.data(), static_cast<size_t>(size > 0 ? size : 0)};
}

int64_t number_at(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

ProcessState state_of(char letter) {
  switch (letter) {
    case 'T':
      return ProcessState::kStopped;
    case 't':
      return ProcessState::kTraced;
    case 'Z':
    case 'X':
      return ProcessState::kEnded;
    default:
      return ProcessState::kRuns;
  }
}

}  // namespace

ProcessLook parse_process_stat(std::string_view stat) {
  // The second field is the name in parentheses, which may contain anything.
  const size_t name_ends = stat.rfind(") ");
  if (name_ends == std::string_view::npos) return {};
  std::string_view rest = stat.substr(name_ends + 2);
  if (rest.empty()) return {};
  ProcessLook look{.state = state_of(rest.front())};
  for (int field = kStateField; field < kBeganField; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return {};
    rest.remove_prefix(space + 1);
  }
  look.began = number_at(rest);
  return look;
}

ProcessLook look_at_process(int64_t pid, int64_t began) {
  const ProcessLook look = parse_process_stat(read_start("/proc/" + std::to_string(pid) + "/stat"));
  return began != 0 && look.began != began ? ProcessLook{} : look;
}

int64_t process_began() { return look_at_process(::getpid(), 0).began; }

ProcessUse process_use() {
  ProcessUse use;
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) use.cpu = cpu.tv_sec * kSecond + cpu.tv_nsec;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) use.major_faults = usage.ru_majflt;
  const std::string status = read_start("/proc/self/status");
  constexpr std::string_view kSwap = "\nVmSwap:";
  const size_t at = status.find(kSwap);
  if (at != std::string::npos)
    use.swapped_bytes = number_at(std::string_view(status).substr(at + kSwap.size())) * 1024;
  return use;
}

}  // namespace rueda
