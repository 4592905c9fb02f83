#include "launch/notices.h"

#include <fmt/format.h>

#include <csignal>

namespace rueda::launch {

std::string exit_notice(PrefixStyle::Kind style, const Ending& ending) {
  if (style != PrefixStyle::Kind::kHorovod || !ending.is_failure()) return {};
  return fmt::format("Process {} exit with status code {}.\n", ending.rank, exit_status(ending));
}

std::string stop_notice(PrefixStyle::Kind style, Rank failed, int running, Nanos grace) {
  if (running == 0) return {};
  if (style == PrefixStyle::Kind::kHorovod)
    return fmt::format("Terminating remaining workers after failure of Process {}.\n", failed);
  return fmt::format("rueda: rank {} failed; {} {} still running and {} {} s to end by {}\n", failed, running,
                     running == 1 ? "rank is" : "ranks are", running == 1 ? "has" : "have", grace / kSecond,
                     running == 1 ? "itself" : "themselves");
}

std::string interrupt_notice(int signal, double grace_s) {
  return fmt::format("rueda: {} was passed on to the ranks, which have {} s to end; {} kills them at once\n",
                     signal_name(signal), grace_s, signal == SIGINT ? "another Ctrl-C" : "a second signal");
}

std::string reported_notice(const std::string& host, int signal, double grace_s) {
  return fmt::format(
      "rueda: {} came to the agent of {}, as from a scheduler that ends the job; the ranks have {} s to "
      "end\n",
      signal_name(signal), host, grace_s);
}

std::string closing_notice(PrefixStyle::Kind style, const Ending& cause) {
  if (style != PrefixStyle::Kind::kHorovod) return {};
  return fmt::format(
      "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
      "to be terminated. The first process to do so was:\nProcess name: {}\nExit code: {}\n",
      cause.rank, exit_status(cause));
}

}  // namespace rueda::launch
