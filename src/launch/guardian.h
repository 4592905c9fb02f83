// Two processes above ranks, each of which ends everything below if the other one is killed. The *guardian*
// only waits. It is a subreaper: when the *worker* is killed, the guardian inherits the processes that the
// worker had started, and kills them. The worker learns of the guardian's death by its parent-death signal.
//
// The agent of `rueda run` (agent.h) and the reaper below which a process is started (`rueda reap below`,
// reaper.h) are such a pair. A reaper beside a process that others have started is one process without a
// guardian.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct GuardedWork {
  const char* guardian_name;  // as ps shows them
  const char* worker_name;
  std::vector<int> signals;  // blocked in both, beside SIGCHLD
  int guardian_died;         // the signal that tells the worker
  Nanos sweep;               // for so long the guardian kills what the worker has left
  // In the worker: returns its exit status. signals: a signalfd(2) of the blocked ones.
  std::function<int(pid_t guardian, UniqueFd signals)> work;
  // In the guardian, once: gives up what only the worker needs.
  std::function<void()> begin_to_wait = [] {};
  // In the guardian: one of `signals` has come.
  std::function<void(const siginfo_t& signal, pid_t worker)> on_signal = [](const siginfo_t&, pid_t) {};
  // At the end of both. One of them may be dead.
  std::function<void()> clean_up = [] {};
};

// The exit status of the worker as a shell would say it; -1: there was no process for it (errno).
int run_guarded(const GuardedWork& guarded);

}  // namespace rueda::launch
