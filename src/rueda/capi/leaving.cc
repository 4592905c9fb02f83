#include "rueda/capi/leaving.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "rueda/status/stop_file.h"

namespace rueda::capi {
namespace {

// What the handler needs. Written once, before there is a handler.
struct Leaving {
  status::ElasticBoard* board = nullptr;
  pid_t owner = 0;
  std::array<char, 4096> stop_file{};
};

Leaving& leaving() {
  static auto* const instance = new Leaving;
  return *instance;
}

Leaving* seen_by_handler = nullptr;

// Calls only what a signal handler may. Children that were forked later inherit it, and end as they would
// without it: workers of data loaders are ended by SIGTERM.
void on_sigterm(int signal) {
  const int before = errno;
  const Leaving& known = *seen_by_handler;
  const bool is_job_ending = known.stop_file[0] != '\0' && access(known.stop_file.data(), F_OK) == 0;
  if (getpid() != known.owner || is_job_ending || !known.board->ask_to_leave()) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // it is delivered when the handler returns
  }
  errno = before;
}

}  // namespace

void leave_on_sigterm(status::ElasticBoard& board) {
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL)
    return;
  const char* const stop_file = std::getenv(status::kStopFileVariable);
  Leaving& known = leaving();
  if (stop_file != nullptr && std::strlen(stop_file) >= known.stop_file.size()) return;
  known.board = &board;
  known.owner = getpid();
  if (stop_file != nullptr) std::strcpy(known.stop_file.data(), stop_file);
  seen_by_handler = &known;
  struct sigaction own {};
  own.sa_handler = on_sigterm;
  own.sa_flags = SA_RESTART;
  sigemptyset(&own.sa_mask);
  sigaction(SIGTERM, &own, nullptr);
}

}  // namespace rueda::capi
