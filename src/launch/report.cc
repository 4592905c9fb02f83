#include "launch/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

namespace rueda::launch {
namespace {

// sigabbrev_np() needs glibc 2.32; the wheel runs on older ones.
struct SignalName {
  int number;
  const char* name;
};
constexpr SignalName kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
};

double seconds(Nanos duration) { return static_cast<double>(duration) / kSecond; }

std::string what_happened(const Ending& ending) {
  if (!ending.trouble.empty()) return ending.trouble;
  if (ending.signal != 0) return fmt::format("was killed by {}", signal_name(ending.signal));
  return fmt::format("exited with code {}", ending.exit_code);
}

// Whether a rank failed because another rank was lost or had left. Its last lines say so, in an exception of
// whichever framework it uses. A rank that raises an exception waits for the others before it exits, so the
// ranks that fail because of it often end before it does.
bool is_victim(const Ending& ending) {
  if (ending.signal != 0 || !ending.trouble.empty()) return false;
  return std::ranges::any_of(ending.last_lines, [](const std::string& line) {
    return line.find(" was lost: ") != std::string::npos ||
           line.find("Horovod has been shut down. ") != std::string::npos ||
           line.find(", so it does not take part in this init; ") != std::string::npos ||
           line.find(" before all ranks were connected, so this init failed; ") != std::string::npos;
  });
}

// A sentence that explains a signal or an exit code; "" if there is nothing to explain.
std::string explanation(const Ending& ending) {
  if (!ending.trouble.empty()) return {};
  if (ending.signal == SIGKILL) {
    if (!ending.was_out_of_memory)
      return "SIGKILL comes from outside: from the kernel's out-of-memory killer (see dmesg), a batch system "
             "or a person.";
    if (*ending.was_out_of_memory)
      return "The kernel's out-of-memory killer struck: the oom_kill counter of its cgroup rose. Use less "
             "memory per rank or fewer ranks per host.";
    return "Somebody killed it: the oom_kill counter of its cgroup did not rise, so it was not the kernel's "
           "out-of-memory killer.";
  }
  if (ending.signal == SIGBUS) return "SIGBUS often means that /dev/shm is full.";
  if (ending.signal == 0 && ending.exit_code > 128 && ending.exit_code <= 128 + SIGRTMAX)
    return fmt::format("Shells exit with code {} after {}{}", ending.exit_code,
                       signal_name(ending.exit_code - 128),
                       ending.exit_code == 137 ? " (out of memory?)." : ".");
  return {};
}

std::string collateral_of(const Ending& ending) {
  if (!ending.is_failure()) return "ended well";
  if (!ending.trouble.empty()) return ending.trouble;
  if (ending.was_stopped)
    return ending.signal != 0 ? fmt::format("stopped by rueda ({})", signal_name(ending.signal))
                              : fmt::format("stopped by rueda (exit code {})", ending.exit_code);
  return what_happened(ending);
}

std::string collateral_lines(std::span<const Ending> endings, size_t cause) {
  std::map<std::string, std::vector<Rank>> groups;
  for (size_t i = 0; i < endings.size(); ++i)
    if (i != cause) groups[collateral_of(endings[i])].push_back(endings[i].rank);
  std::string text;
  for (auto& [what, ranks] : groups) {
    std::ranges::sort(ranks);
    text += fmt::format("  {} {}: {}\n", ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), what);
  }
  return text;
}

std::string after(const Ending& ending) {
  return ending.pid > 0 ? fmt::format(" after {:.1f} s", std::max(0.0, seconds(ending.at))) : "";
}

// The rank that a victim names as the one it could not go on without. It has ended well, or it did not answer
// and was stopped at the end.
std::optional<size_t> culprit_of(const Ending& victim, std::span<const Ending> endings) {
  if (!is_victim(victim)) return std::nullopt;
  for (size_t i = 0; i < endings.size(); ++i) {
    if (endings[i].is_failure() && !endings[i].was_stopped) continue;
    const std::string in_engine = fmt::format("rank {} (host ", endings[i].rank);
    const std::string in_init = fmt::format("rank {} on {} (pid ", endings[i].rank, endings[i].host);
    const auto names_it = [&](const std::string& line) {
      return line.find(in_engine) != std::string::npos || line.find(in_init) != std::string::npos;
    };
    if (std::ranges::any_of(victim.last_lines, names_it)) return i;
  }
  return std::nullopt;
}

std::string headline(const Ending& first, const Ending* culprit) {
  if (culprit == nullptr) return describe(first) + after(first);
  if (!culprit->was_stopped)
    return describe(*culprit) + after(*culprit) + ", while other ranks still needed it";
  return fmt::format("rank {} on {} (pid {}) was lost to the other ranks while it was still running",
                     culprit->rank, culprit->host, culprit->pid);
}

}  // namespace

std::string rank_list(const std::vector<Rank>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last > i + 1 ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    i = last > i + 1 ? last + 1 : i + 1;
  }
  return text;
}

std::string signal_name(int signal) {
  const auto* const found = std::ranges::find(kSignals, signal, &SignalName::number);
  return found != std::end(kSignals) ? found->name : fmt::format("signal {}", signal);
}

std::string describe(const Ending& ending) {
  const std::string pid = ending.pid > 0 ? fmt::format(" (pid {})", ending.pid) : "";
  return fmt::format("rank {} on {}{} {}", ending.rank, ending.host, pid, what_happened(ending));
}

std::optional<size_t> first_cause(std::span<const Ending> endings) {
  std::optional<size_t> best;
  const auto key = [](const Ending& e) {
    return std::make_tuple(e.was_stopped, is_victim(e), e.at, e.signal == 0, e.rank);
  };
  for (size_t i = 0; i < endings.size(); ++i)
    if (endings[i].is_failure() && (!best || key(endings[i]) < key(endings[*best]))) best = i;
  return best;
}

int exit_status(const Ending& ending) {
  if (ending.signal != 0) return 128 + ending.signal;
  if (ending.exit_code != 0) return ending.exit_code;
  return ending.trouble.empty() ? 0 : 1;
}

int job_exit_status(std::span<const Ending> endings, int interrupt) {
  const std::optional<size_t> cause = first_cause(endings);
  if (interrupt != 0 && (!cause || endings[*cause].was_stopped)) return 128 + interrupt;
  return cause ? exit_status(endings[*cause]) : 0;
}

std::string failure_report(std::span<const Ending> endings, int interrupt) {
  const std::optional<size_t> cause = first_cause(endings);
  if (interrupt != 0 && (!cause || endings[*cause].was_stopped))
    return fmt::format("rueda: the job was stopped by {}\n", signal_name(interrupt)) +
           collateral_lines(endings, endings.size());
  if (!cause) return {};
  const Ending& first = endings[*cause];
  const std::optional<size_t> culprit = culprit_of(first, endings);
  std::string text =
      "rueda: the job failed: " + headline(first, culprit ? &endings[*culprit] : nullptr) + "\n";
  if (const std::string why = explanation(first); !why.empty()) text += "  " + why + "\n";
  if (culprit) text += fmt::format("  rank {} failed because of this{}\n", first.rank, after(first));
  if (!first.last_lines.empty()) {
    text += fmt::format("  last lines of its {}:\n", first.stream);
    for (const std::string& line : first.last_lines) text += "  | " + line + "\n";
  }
  if (!first.log_path.empty()) text += "  log: " + first.log_path + "\n";
  text += collateral_lines(endings, *cause);
  text += fmt::format("  exit status {}\n", job_exit_status(endings, interrupt));
  return text;
}

}  // namespace rueda::launch
