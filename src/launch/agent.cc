#include "launch/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "launch/agent_loop.h"
#include "launch/guardian.h"
#include "launch/private_dir.h"
#include "launch/warning.h"

namespace rueda::launch {
namespace {

constexpr timespec kSignalSpreads{.tv_sec = 0, .tv_nsec = 20 * kMillisecond};
constexpr Nanos kGuardianSweep = 4 * kSecond;  // everything is gone 5 s after the worker's death

int complain(const std::string& what) {
  warn("agent", what);
  return 1;
}

// Passes on a signal and who has sent it. A scheduler that signals all processes has then reached the worker
// itself.
void pass_on(const siginfo_t& info, pid_t worker) {
  nanosleep(&kSignalSpreads, nullptr);
  if (sigqueue(worker, info.si_signo, {.sival_int = info.si_pid}) != 0) kill(worker, info.si_signo);
}

}  // namespace

int agent_main(const std::string& release, const std::optional<Joining>& joining) {
  const Result<PrivateDir> made = make_private_dir();
  if (!made.is_ok()) return complain(made.status().why);
  const std::string& dir = made.value().path;
  const auto work = [&](pid_t guardian, UniqueFd signals) {
    setpgid(0, 0);  // so that a signal to the guardian's group does not look like one to all processes
    return AgentLoop({release, dir, joining}, guardian, std::move(signals)).run();
  };
  const int status = run_guarded({.guardian_name = "rueda-guardian",
                                  .worker_name = "rueda-agent",
                                  .signals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU},
                                  .guardian_died = SIGTERM,
                                  .sweep = kGuardianSweep,
                                  .work = work,
                                  .on_signal = pass_on,
                                  .clean_up = [&dir] { remove_private_dir(dir); }});
  return status < 0 ? complain(fmt::format("cannot fork: {}", std::strerror(errno))) : status;
}

}  // namespace rueda::launch
