#include "launch/ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>

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

}  // namespace

int exit_status(const Ending& ending) {
  if (ending.signal != 0) return 128 + ending.signal;
  if (ending.exit_code != 0) return ending.exit_code;
  return ending.trouble.empty() ? 0 : 1;
}

std::string what_happened(const Ending& ending) {
  if (!ending.trouble.empty()) return ending.trouble;
  if (ending.signal != 0) return fmt::format("was killed by {}", signal_name(ending.signal));
  return fmt::format("exited with code {}", ending.exit_code);
}

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

}  // namespace rueda::launch
