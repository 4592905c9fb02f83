// The part of AgentLoop that handles signals which come to the agent.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "launch/agent_loop.h"
#include "rueda/base/process.h"

namespace rueda::launch {
namespace {

// A scheduler that signals all processes may reach a rank before this agent.
constexpr Nanos kSameSignalIn = 100 * kMillisecond;

// Slurm without cgroups signals every process below slurmstepd. Where slurmstepd signals process groups, it
// does not reach the worker, which has its own.
bool signals_all_below(pid_t sender) { return look_at_process(sender, 0).name == "slurmstepd"; }

}  // namespace

void AgentLoop::read_signals() {
  take_signals();
  reap();
}

void AgentLoop::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;  // the caller reaps in any case
    const bool is_passed_on = info.ssi_code == SI_QUEUE && std::cmp_equal(info.ssi_pid, guardian_);
    const auto sender = static_cast<pid_t>(is_passed_on ? static_cast<uint32_t>(info.ssi_int) : info.ssi_pid);
    on_outside_signal(static_cast<int>(info.ssi_signo), sender, is_passed_on);
  }
}

// is_passed_on: by the guardian; sender is then whoever has sent it to the guardian.
void AgentLoop::on_outside_signal(int signal, pid_t sender, bool is_passed_on) {
  if (getppid() != guardian_) return lose_launcher("the guardian of this agent was killed");
  const std::optional<Job>& job = ranks_.job();
  if (!job || is_launcher_lost_) {
    if (ends_job(signal)) lose_launcher("a signal ended this agent");
    return;
  }
  const Nanos now = monotonic_now();
  const auto way = is_passed_on ? OutsideSignals::Way::kGuardian : OutsideSignals::Way::kWorker;
  const OutsideSignals::Answer answer = !is_passed_on && signals_all_below(sender)
                                            ? outside_signals_.on_spread(signal, sender, now)
                                            : outside_signals_.on_own(signal, sender, way, now);
  if (!answer.is_new) return;
  if (leaves_job(signal)) {
    keeps_grace_ = true;  // if the launcher ends, too
    end_signal_ = SIGTERM;
  } else if (ends_job(signal)) {
    keeps_grace_ = true;
    const int first = !answer.goes_to_ranks ? 0 : signal == SIGINT ? SIGINT : SIGTERM;
    ranks_.stop(job->grace_ms * kMillisecond, first);
  } else if (answer.goes_to_ranks) {
    ranks_.signal(signal);
  }
  ByteWriter writer;
  writer.put(static_cast<int32_t>(signal));
  send(MessageType::kSignalled, writer.bytes());
}

// A scheduler takes this host away: the processes of an elastic job leave at the next commit. If it says so
// again, they end at once.
bool AgentLoop::leaves_job(int signal) {
  const bool takes_host = signal == SIGTERM || joining_.has_value();
  return ranks_.job()->is_elastic && takes_host && ends_job(signal) && !ranks_.are_stopping() &&
         !std::exchange(is_leaving_, true);
}

// A scheduler ends the job, and the launcher will pass that on unless it is ended before.
void AgentLoop::on_signal_elsewhere(int signal) {
  if (!ranks_.job() || !ends_job(signal)) return;
  keeps_grace_ = true;
  end_signal_ = signal == SIGINT ? SIGINT : SIGTERM;
}

void AgentLoop::on_launcher_signal(int signal) {
  if (outside_signals_.on_launcher(signal, monotonic_now())) ranks_.signal(signal);
}

// A rank was killed by a signal that ends jobs. If this agent gets it as well, that is the cause.
void AgentLoop::await_same_signal() {
  const Deadline deadline = Deadline::after(kSameSignalIn);
  while (!ranks_.are_stopping() && !deadline.is_past()) {
    pollfd readable{.fd = signals_.get(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, deadline.timeout_ms());
    take_signals();
  }
}

void AgentLoop::reap() {
  int status = 0;
  const Nanos now = monotonic_now();  // one time for all: in which order they died is unknown
  bool has_waited = false;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (branches_.on_reaped(pid, status)) continue;
    if (WIFSIGNALED(status) && ends_job(WTERMSIG(status)) && !std::exchange(has_waited, true))
      await_same_signal();
    ranks_.on_reaped(pid, status, now);
  }
}

}  // namespace rueda::launch
