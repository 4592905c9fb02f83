#include "launch/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "rueda/base/sleep.h"

namespace rueda::launch {
namespace {

struct ExecFailure {
  int error = 0;
  int stage = 0;  // 1 = descriptors, 2 = directory, 3 = exec
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void fail_child(int report, int stage) {
  const ExecFailure failure{.error = errno, .stage = stage};
  [[maybe_unused]] const ssize_t written = write(report, &failure, sizeof failure);
  _exit(127);
}

// As fork(), with a process between that ends at once.
pid_t fork_aside() {
  Result<Pipe> told = make_pipe();
  if (!told.is_ok()) return -1;
  int was_subreaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  const pid_t between = fork();
  if (between == 0) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) {
      [[maybe_unused]] const ssize_t written = write(told.value().write.get(), &pid, sizeof pid);
      _exit(0);
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = kMillisecond};
    while (getppid() == parent) nanosleep(&pause, nullptr);
    return 0;
  }
  told.value().write.reset();
  pid_t pid = -1;
  if (between > 0) {
    while (read(told.value().read.get(), &pid, sizeof pid) < 0 && errno == EINTR) continue;
    waitpid(between, nullptr, 0);
  }
  prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
  return pid;
}

// Runs in the child, so it may use async-signal-safe calls only.
[[noreturn]] void become(const SpawnSpec& spec, char* const* argv, char* const* env, pid_t parent,
                         int report) {
  setsid();
  if (!spec.cores.empty()) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (const int core : spec.cores) CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);  // fails only if the CPUs were taken away just now
  }
  if (spec.death_signal != 0 && !spec.is_aside) {
    prctl(PR_SET_PDEATHSIG, spec.death_signal);
    if (getppid() != parent) _exit(127);  // the parent died before the request took effect
  }
  for (int signal = 1; signal < NSIG; ++signal)
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const std::array<int, 3> wanted = {spec.in, spec.out, spec.err};
  for (int target = 0; target < 3; ++target)  // above the range we are about to overwrite
    if (wanted[static_cast<size_t>(target)] <= 2) fail_child(report, 1);
  for (int target = 0; target < 3; ++target)
    if (dup2(wanted[static_cast<size_t>(target)], target) < 0) fail_child(report, 1);
  if (!spec.cwd.empty() && chdir(spec.cwd.c_str()) != 0) fail_child(report, 2);
  execve(spec.path.c_str(), argv, env);
  fail_child(report, 3);
}

// Scripts need their interpreter in front; who forgets it is told the command to write.
std::string script_hint(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name.ends_with(".py") && name.size() > 3 ? fmt::format("; write python {}", program) : "";
}

Status spawn_error(const SpawnSpec& spec, const ExecFailure& failure) {
  const std::string why = std::strerror(failure.error);
  if (failure.stage == 2)
    return {Code::kInvalidArgument, fmt::format("cannot enter the directory {}: {}", spec.cwd, why)};
  if (failure.stage == 1) return {Code::kUnavailable, "cannot set up its stdin, stdout and stderr: " + why};
  if (failure.error == ENOENT || failure.error == ENOTDIR)
    return {Code::kInvalidArgument, fmt::format("command not found: {} (or its interpreter){}", spec.path,
                                                script_hint(spec.argv.front()))};
  const Code code =
      failure.error == EAGAIN || failure.error == ENOMEM ? Code::kUnavailable : Code::kPermissionDenied;
  std::string hint = script_hint(spec.argv.front());
  if (hint.empty() && failure.error == ENOEXEC) hint = "; a script needs a first line such as #!/bin/sh";
  return {code, fmt::format("cannot execute {}: {}{}", spec.path, why, hint)};
}

std::optional<int64_t> counter_in(const std::string& text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const char* digits = text.data() + at + name.size();
    int64_t value = 0;
    if (std::from_chars(digits, text.data() + text.size(), value).ec == std::errc()) return value;
  }
  return std::nullopt;
}

// Zombies as well.
std::vector<std::pair<pid_t, ProcessLook>> visible_processes() {
  std::vector<std::pair<pid_t, ProcessLook>> visible;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    ProcessLook look = look_at_process(pid, 0);
    if (look.state != ProcessState::kUnknown) visible.emplace_back(pid, std::move(look));
  }
  return visible;
}

}  // namespace

Result<pid_t> spawn(const SpawnSpec& spec) {
  Result<Pipe> report = make_pipe();
  if (!report.is_ok()) return report.status();
  const std::vector<char*> argv = pointers(spec.argv);
  const std::vector<char*> env = pointers(spec.env);
  const pid_t parent = getpid();
  const pid_t pid = spec.is_aside ? fork_aside() : fork();
  if (pid < 0)
    return Status(Code::kUnavailable, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid == 0) become(spec, argv.data(), env.data(), parent, report.value().write.get());
  report.value().write.reset();
  ExecFailure failure;
  ssize_t size = 0;
  do size = read(report.value().read.get(), &failure, sizeof failure);
  while (size < 0 && errno == EINTR);
  if (size == 0) return pid;  // exec closed the pipe
  int ignored = 0;
  waitpid(pid, &ignored, 0);
  return spawn_error(spec, failure);
}

int exit_code_of(const Status& spawn_failure) {
  if (spawn_failure.code == Code::kInvalidArgument) return 127;
  return spawn_failure.code == Code::kPermissionDenied ? 126 : 1;
}

Result<std::string> find_program(const std::string& name, std::string_view path, const std::string& cwd) {
  if (name.empty()) return Status(Code::kInvalidArgument, "the command is empty");
  if (name.find('/') != std::string::npos) return name;
  bool is_forbidden = false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::string dir(path.substr(begin, end - begin));
    begin = end + 1;
    if (dir.empty()) dir = cwd;
    std::string candidate = dir + "/" + name;
    struct stat info {};
    const std::string seen = candidate.front() == '/' ? candidate : cwd + "/" + candidate;
    if (stat(seen.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (access(seen.c_str(), X_OK) == 0) return seen;
    is_forbidden = true;
  }
  if (is_forbidden)
    return Status(
        Code::kPermissionDenied,
        fmt::format("cannot execute {}: it is in PATH but not executable{}", name, script_hint(name)));
  return Status(Code::kInvalidArgument,
                fmt::format("command not found: {} is in no directory of PATH{}", name, script_hint(name)));
}

Result<Pipe> make_pipe() {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0)
    return Status(Code::kUnavailable,
                  fmt::format("cannot create a pipe: {}; if too many files are open, raise ulimit -n",
                              std::strerror(errno)));
  // Moves it out of the range of stdin, stdout and stderr, in case one of these was closed.
  for (int& fd : fds) {
    if (fd > 2) continue;
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    fd = high;
  }
  return Pipe{.read = UniqueFd(fds[0]), .write = UniqueFd(fds[1])};
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::string read_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {};  // reading one would throw
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_alive(const ProcessLook& look) {
  return look.state != ProcessState::kUnknown && (look.state != ProcessState::kEnded || look.threads > 1);
}

std::vector<std::pair<pid_t, ProcessLook>> living_processes() {
  std::vector<std::pair<pid_t, ProcessLook>> living = visible_processes();
  std::erase_if(living, [](const auto& process) { return !is_alive(process.second); });
  return living;
}

std::vector<pid_t> descendants_of(pid_t ancestor, std::span<const pid_t> spared) {
  struct Child {
    pid_t pid;
    bool is_alive;
  };
  std::multimap<pid_t, Child> children;
  for (const auto& [pid, look] : visible_processes())
    children.emplace(look.parent, Child{.pid = pid, .is_alive = is_alive(look)});
  std::vector<pid_t> below = {ancestor}, alive;
  for (size_t i = 0; i < below.size(); ++i) {
    const auto [first, last] = children.equal_range(below[i]);
    for (auto child = first; child != last; ++child) {
      if (std::ranges::find(spared, child->second.pid) != spared.end()) continue;
      below.push_back(child->second.pid);
      if (child->second.is_alive) alive.push_back(child->second.pid);
    }
  }
  return alive;
}

size_t kill_all(const std::function<std::vector<pid_t>()>& find, Deadline deadline) {
  constexpr int kQuietLooks = 3;
  for (int quiet = 0;;) {
    const std::vector<pid_t> left = find();
    quiet = left.empty() ? quiet + 1 : 0;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    if (quiet == kQuietLooks || deadline.is_past()) return left.size();
    sleep_for(5 * kMillisecond);
  }
}

size_t kill_descendants(Deadline deadline, uint64_t since, std::span<const std::string_view> spare) {
  const auto is_spared = [&](pid_t pid) {
    const ProcessLook look = look_at_process(pid, 0);
    return look.state == ProcessState::kUnknown || std::cmp_less(look.began, since) ||
           std::ranges::find(spare, look.name) != spare.end();
  };
  const auto find = [&] {
    std::vector<pid_t> found = descendants_of(getpid());
    std::erase_if(found, is_spared);
    return found;
  };
  return kill_all(find, deadline);
}

uint64_t start_ticks(pid_t pid) { return static_cast<uint64_t>(look_at_process(pid, 0).began); }

int64_t oom_kills() {
  const std::string groups = read_text("/proc/self/cgroup");
  for (size_t begin = 0; begin < groups.size();) {
    const size_t end = std::min(groups.find('\n', begin), groups.size());
    const std::string line = groups.substr(begin, end - begin);
    begin = end + 1;
    std::string file;
    if (line.starts_with("0::")) file = "/sys/fs/cgroup" + line.substr(3) + "/memory.events";
    if (const size_t at = line.find(":memory:"); at != std::string::npos)
      file = "/sys/fs/cgroup/memory" + line.substr(at + 8) + "/memory.oom_control";
    if (file.empty()) continue;
    if (const std::optional<int64_t> kills = counter_in(read_text(file), "oom_kill ")) return *kills;
  }
  return -1;
}

std::vector<std::string> to_environment(const Variables& variables) {
  std::map<std::string_view, std::string_view> last;
  for (const auto& [name, value] : variables) last[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : last) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

}  // namespace rueda::launch
