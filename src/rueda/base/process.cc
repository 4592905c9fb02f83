#include "rueda/base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string>

#include "rueda/base/unique_fd.h"

namespace rueda {
namespace {

constexpr int kStateField = 3, kParentField = 4, kThreadsField = 20,
              kBeganField = 22;  // of /proc/PID/stat, counted from 1

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

// The time on a core and the time in a run queue of each thread (Documentation/scheduler/sched-stats).
// Threads that have ended do not count. Nothing if this kernel does not say.
std::optional<Nanos> time_wanted() {
  constexpr int kMostThreads = 512;  // some 5 us each
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (!tasks) return std::nullopt;
  std::optional<Nanos> total;
  int seen = 0;
  while (const dirent* entry = ::readdir(tasks.get())) {
    if (entry->d_name[0] == '.') continue;
    if (++seen > kMostThreads) break;
    const std::string times = read_proc("/proc/self/task/" + std::string(entry->d_name) + "/schedstat");
    const size_t space = times.find(' ');
    if (space == std::string::npos) continue;
    total = total.value_or(0) + number_at(times) + number_at(std::string_view(times).substr(space));
  }
  return total;
}

Nanos cpu_time() {
  timespec cpu{};
  return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0 ? cpu.tv_sec * kSecond + cpu.tv_nsec : 0;
}

}  // namespace

std::string read_proc(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  const ssize_t size = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  return {text.data(), static_cast<size_t>(size > 0 ? size : 0)};
}

ProcessLook parse_process_stat(std::string_view stat) {
  // The second field is the name in parentheses, which may contain anything.
  const size_t name_begins = stat.find('('), name_ends = stat.rfind(") ");
  if (name_begins == std::string_view::npos || name_ends == std::string_view::npos) return {};
  std::string_view rest = stat.substr(name_ends + 2);
  if (rest.empty()) return {};
  ProcessLook look;
  look.state = state_of(rest.front());
  look.name = stat.substr(name_begins + 1, name_ends - name_begins - 1);
  for (int field = kStateField; field < kBeganField; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return {};
    rest.remove_prefix(space + 1);
    if (field + 1 == kParentField) look.parent = static_cast<int32_t>(number_at(rest));
    if (field + 1 == kThreadsField) look.threads = static_cast<int32_t>(number_at(rest));
  }
  look.began = number_at(rest);
  return look;
}

ProcessLook look_at_process(int64_t pid, int64_t began) {
  const ProcessLook look = parse_process_stat(read_proc("/proc/" + std::to_string(pid) + "/stat"));
  return began != 0 && look.began != began ? ProcessLook{} : look;
}

std::string why_no_answer(ProcessState state, int64_t pid) {
  switch (state) {
    case ProcessState::kStopped:
      return "it is stopped, and `kill -CONT " + std::to_string(pid) + "` lets it go on";
    case ProcessState::kTraced:
      return "a debugger holds it";
    case ProcessState::kRuns:
      return "it is not stopped; its machine may have no core for it";
    case ProcessState::kEnded:
      return "it has ended";
    case ProcessState::kUnknown:
      break;
  }
  return "it may be stopped";
}

bool is_or_descends_from(int64_t pid, int64_t ancestor) {
  constexpr int kMostAncestors = 64;
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = look_at_process(pid, 0).parent)
    if (pid == ancestor) return true;
  return false;
}

int64_t pid_space() {
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? static_cast<int64_t>(about.st_ino) : 0;
}

int64_t process_began() { return look_at_process(::getpid(), 0).began; }

Nanos process_age() {
  const int64_t began = process_began();
  timespec now{};
  if (began == 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const Nanos tick = kSecond / ::sysconf(_SC_CLK_TCK);
  return now.tv_sec * kSecond + now.tv_nsec - began * tick;
}

ProcessUse process_use() {
  ProcessUse use;
  use.at = monotonic_now();
  use.cpu = time_wanted().value_or(cpu_time());
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) use.major_faults = usage.ru_majflt;
  const std::string status = read_proc("/proc/self/status");
  constexpr std::string_view kSwap = "\nVmSwap:";
  const size_t at = status.find(kSwap);
  if (at != std::string::npos)
    use.swapped_bytes = number_at(std::string_view(status).substr(at + kSwap.size())) * 1024;
  return use;
}

}  // namespace rueda
