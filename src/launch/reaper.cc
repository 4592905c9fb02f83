#include "launch/reaper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "launch/guardian.h"
#include "launch/processes.h"
#include "launch/warning.h"
#include "rueda/base/process.h"
#include "rueda/base/unique_fd.h"
#include "rueda/status/folder.h"

namespace rueda::launch {
namespace {

constexpr Nanos kSweepBelow = 3 * kSecond, kSweepBeside = 5 * kSecond;
constexpr int kLookEveryMs = 250;  // where the kernel cannot report the end of a process that is no child
constexpr long kPidfdOpen = 434;   // on all machines; the headers of older systems lack SYS_pidfd_open

int fail(std::string_view what) {
  warn("reap", what);
  return 2;
}

void tell_owner(int fd, std::string_view line) {
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());  // the reader may be gone
}

std::optional<int> descriptor_or_pid(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The owner decides when the process ends, and by nothing but stdin.
void ignore_terminal() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
}

// ---- below ----

class Reaper {
 public:
  Reaper(pid_t guardian, UniqueFd signals) : guardian_(guardian), signals_(std::move(signals)) {}

  int run(std::vector<std::string> command, UniqueFd out, UniqueFd err) {
    UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    std::vector<std::string> environment;
    for (char** one = environ; *one != nullptr; ++one) environment.emplace_back(*one);
    const std::string path = command.front();
    const Result<pid_t> started = spawn({.path = path,
                                         .argv = std::move(command),
                                         .env = std::move(environment),
                                         .cwd = "",
                                         .in = nothing.get(),
                                         .out = out.get(),
                                         .err = err.get(),
                                         .death_signal = SIGKILL});
    if (!started.is_ok()) {
      tell_owner(err.get(), fmt::format("rueda: {}\n", started.status().why));
      tell_owner(STDOUT_FILENO, fmt::format("ended {}\n", W_EXITCODE(exit_code_of(started.status()), 0)));
      return 0;
    }
    rank_ = started.value();
    out.reset();
    err.reset();
    tell_owner(STDOUT_FILENO, fmt::format("started {}\n", rank_));
    const std::optional<int> status = watch();
    kill_descendants(Deadline::after(kSweepBelow));
    if (status) tell_owner(STDOUT_FILENO, fmt::format("ended {}\n", *status));
    return 0;
  }

 private:
  // The wait status of the program; nothing: its owner or the guardian is gone first. No limit: a reaper has
  // nothing else to do, and the kernel reports all three.
  std::optional<int> watch() {
    while (getppid() == guardian_) {
      std::array<pollfd, 2> polled{{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                    {.fd = signals_.get(), .events = POLLIN, .revents = 0}}};
      if (poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[1].revents != 0) {
        signalfd_siginfo info{};
        while (read(signals_.get(), &info, sizeof info) > 0) continue;
        if (const std::optional<int> status = reap()) return status;
      }
      if (polled[0].revents != 0 && !obey()) return std::nullopt;
    }
    return std::nullopt;
  }

  // Orphans of the program end here too: only the program counts.
  [[nodiscard]] std::optional<int> reap() const {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
      if (pid == rank_) return status;
    return std::nullopt;
  }

  // False at end of file.
  [[nodiscard]] bool obey() const {
    char request = 0;
    const ssize_t got = read(STDIN_FILENO, &request, 1);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    for (const pid_t pid : request == 'A' ? descendants_of(getpid()) : std::vector<pid_t>{rank_})
      kill(pid, SIGTERM);
    return true;
  }

  pid_t guardian_, rank_ = 0;
  UniqueFd signals_;
};

int reap_below(const std::vector<std::string>& arguments) {
  const std::optional<int> out = descriptor_or_pid(arguments[1]), err = descriptor_or_pid(arguments[2]);
  for (const std::optional<int>& fd : {out, err})
    if (!fd || *fd <= STDERR_FILENO || fcntl(*fd, F_GETFD) < 0)
      return fail(
          fmt::format("OUT and ERR are open descriptors above 2, not {} and {}", arguments[1], arguments[2]));
  ignore_terminal();
  fcntl(*out, F_SETFD, FD_CLOEXEC);
  fcntl(*err, F_SETFD, FD_CLOEXEC);
  const auto work = [&](pid_t guardian, UniqueFd signals) {
    return Reaper(guardian, std::move(signals))
        .run({arguments.begin() + 3, arguments.end()}, UniqueFd(*out), UniqueFd(*err));
  };
  const auto close_all = [] {
    close(STDIN_FILENO);
    for (int fd = STDERR_FILENO + 1; fd < 1024; ++fd) close(fd);  // the pipes of the program must end with it
  };
  const int status = run_guarded({.guardian_name = "rueda-guardian",
                                  .worker_name = "rueda-reaper",
                                  .signals = {SIGUSR1},
                                  .guardian_died = SIGUSR1,
                                  .sweep = kSweepBelow,
                                  .work = work,
                                  .begin_to_wait = close_all,
                                  .clean_up = [] { status::remove_dead_sockets(status::folder_path()); }});
  return status < 0 ? fail(fmt::format("cannot fork: {}", std::strerror(errno))) : 0;
}

// ---- beside ----

using Forked = std::map<pid_t, int64_t>;  // when each began

bool is_marked(pid_t pid, const std::string& mark) {
  const std::string all = '\0' + read_text(fmt::format("/proc/{}/environ", pid));
  return all.find('\0' + mark + '\0') != std::string::npos;
}

// Returns when the process has ended, with those that it had forked until then.
Forked watch_beside(pid_t owner, int64_t began) {
  Forked forked;
  const UniqueFd end(static_cast<int>(syscall(kPidfdOpen, owner, 0)));  // Linux 5.3
  std::array<pollfd, 2> polled{{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                {.fd = end.get(), .events = POLLIN, .revents = 0}}};
  while (true) {
    if (poll(polled.data(), polled.size(), end.is_open() ? -1 : kLookEveryMs) < 0) continue;
    if (polled[0].revents != 0) {
      int64_t pid = 0;
      if (read(STDIN_FILENO, &pid, sizeof pid) == sizeof pid) {
        const ProcessLook look = look_at_process(pid, 0);
        if (is_alive(look)) forked[static_cast<pid_t>(pid)] = look.began;
        continue;  // what was forked before the end is read before the end counts
      }
      polled[0].fd = -1;
    }
    if (polled[1].revents != 0 || !is_alive(look_at_process(owner, began))) return forked;
  }
}

std::vector<pid_t> left_beside(const std::string& mark, const Forked& forked) {
  std::vector<pid_t> left;
  for (const auto& [pid, look] : living_processes()) {
    const auto fork = forked.find(pid);
    const bool is_forked = fork != forked.end() && fork->second == look.began;
    if (pid == getpid() || (!is_forked && !is_marked(pid, mark))) continue;
    if (look_at_process(look.parent, 0).name != "raylet") left.push_back(pid);
  }
  return left;
}

int reap_beside(const std::vector<std::string>& arguments) {
  const std::optional<int> owner = descriptor_or_pid(arguments[1]);
  const ProcessLook look = look_at_process(owner.value_or(0), 0);
  if (!owner || !is_alive(look)) return fail("there is no process " + arguments[1]);
  if (const size_t name = arguments[2].find('='); name == 0 || name == std::string::npos)
    return fail(fmt::format("the mark of a process is NAME=value, not \"{}\"", arguments[2]));
  const pid_t reaper = fork();
  if (reaper < 0) return fail(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (reaper > 0) return 0;
  prctl(PR_SET_NAME, "rueda-reaper");
  ignore_terminal();
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.get(), fd);  // logs must end with the rank
  const Forked forked = watch_beside(*owner, look.began);
  kill_all([&] { return left_beside(arguments[2], forked); }, Deadline::after(kSweepBeside));
  status::remove_dead_sockets(status::folder_path());
  return 0;
}

}  // namespace

int reaper_main(const std::vector<std::string>& arguments) {
  if (arguments.size() >= 4 && arguments[0] == "below") return reap_below(arguments);
  if (arguments.size() == 3 && arguments[0] == "beside") return reap_beside(arguments);
  return fail("is a part of rueda.spark, rueda.ray and horovod.runner, which start it themselves");
}

}  // namespace rueda::launch
