#include "launch/guardian.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/processes.h"

namespace rueda::launch {
namespace {

[[noreturn]] void be_worker(const GuardedWork& guarded, const sigset_t& blocked, pid_t guardian) {
  prctl(PR_SET_NAME, guarded.worker_name);
  prctl(PR_SET_PDEATHSIG, guarded.guardian_died);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int status = guarded.work(guardian, UniqueFd(signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK)));
  guarded.clean_up();
  _exit(status);
}

// Returns the exit status of the worker as a shell would.
int wait_for(pid_t worker, const GuardedWork& guarded, const sigset_t& blocked) {
  while (true) {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != worker) continue;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    // This wait has no limit: a guardian has nothing else to do, and the kernel reports the death
    // of every child.
    siginfo_t info{};
    const int signal = sigwaitinfo(&blocked, &info);
    if (signal > 0 && signal != SIGCHLD) guarded.on_signal(info, worker);
  }
}

}  // namespace

int run_guarded(const GuardedWork& guarded) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  for (const int number : guarded.signals) sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond ulimit -f, write() then fails with an errno
  signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would hide exit statuses
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, guarded.guardian_name);
  const pid_t guardian = getpid();
  const pid_t worker = fork();
  if (worker < 0) return -1;
  if (worker == 0) be_worker(guarded, blocked, guardian);
  guarded.begin_to_wait();
  const int status = wait_for(worker, guarded, blocked);
  kill_descendants(Deadline::after(guarded.sweep));
  guarded.clean_up();
  return status;
}

}  // namespace rueda::launch
