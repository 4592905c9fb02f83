#include "launch/agent.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "launch/agent_loop.h"
#include "launch/private_dir.h"
#include "launch/processes.h"

namespace rueda::launch {
namespace {

constexpr timespec kSignalSpreads{.tv_sec = 0, .tv_nsec = 20 * kMillisecond};
constexpr Nanos kGuardianSweep = 4 * kSecond;  // everything is gone 5 s after the worker's death

int complain(const std::string& what) {
  const std::string text = fmt::format("rueda agent: {}\n", what);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  return 1;
}

[[noreturn]] void be_worker(const std::string& release, const std::string& dir, pid_t guardian,
                            const sigset_t& signals) {
  prctl(PR_SET_NAME, "rueda-agent");
  setpgid(0, 0);  // so that a signal to the guardian's group does not look like one to all processes
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  AgentLoop loop(release, dir, guardian, UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)));
  const int status = loop.run();
  remove_private_dir(dir);  // in case the guardian is dead
  _exit(status);
}

// Passes on a signal and who has sent it. A scheduler that signals all processes has then reached the worker
// itself.
void pass_on(const siginfo_t& info, pid_t worker) {
  nanosleep(&kSignalSpreads, nullptr);
  if (sigqueue(worker, info.si_signo, {.sival_int = info.si_pid}) != 0) kill(worker, info.si_signo);
}

// Waits for the worker and passes signals on to it. Returns its exit status as a shell would.
int wait_for(pid_t worker, const sigset_t& signals) {
  while (true) {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != worker) continue;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    // This wait has no limit: a guardian has nothing else to do, and the kernel reports the death
    // of every child.
    siginfo_t info{};
    const int signal = sigwaitinfo(&signals, &info);
    if (signal > 0 && signal != SIGCHLD) pass_on(info, worker);
  }
}

}  // namespace

int agent_main(const std::string& release) {
  const Result<PrivateDir> made = make_private_dir();
  if (!made.is_ok()) return complain(made.status().why);
  const std::string& dir = made.value().path;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond ulimit -f, write() then fails with an errno
  signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would hide exit statuses
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "rueda-guardian");
  const pid_t guardian = getpid();
  const pid_t worker = fork();
  if (worker < 0) return complain(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (worker == 0) be_worker(release, dir, guardian, signals);
  const int status = wait_for(worker, signals);
  kill_descendants(Deadline::after(kGuardianSweep));
  remove_private_dir(dir);
  return status;
}

}  // namespace rueda::launch
