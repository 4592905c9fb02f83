// The part of AgentLoop that handles signals: those that come to the agent, and those that its ranks get.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
  if (!job_ || is_launcher_lost_) {
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
    stop(job_->grace_ms * kMillisecond, first);
  } else if (answer.goes_to_ranks) {
    signal_ranks(signal);
  }
  ByteWriter writer;
  writer.put(static_cast<int32_t>(signal));
  send(MessageType::kSignalled, writer.bytes());
}

// A scheduler takes this host away: the processes of an elastic job leave at the next commit. If it says so
// again, they end at once.
bool AgentLoop::leaves_job(int signal) {
  const bool takes_host = signal == SIGTERM || joining_.has_value();
  return job_->is_elastic && takes_host && ends_job(signal) && !is_stopping_ &&
         !std::exchange(is_leaving_, true);
}

// A scheduler ends the job, and the launcher will pass that on unless it is ended before.
void AgentLoop::on_signal_elsewhere(int signal) {
  if (!job_ || !ends_job(signal)) return;
  keeps_grace_ = true;
  end_signal_ = signal == SIGINT ? SIGINT : SIGTERM;
}

void AgentLoop::on_launcher_signal(int signal) {
  if (outside_signals_.on_launcher(signal, monotonic_now())) signal_ranks(signal);
}

// A rank was killed by a signal that ends jobs. If this agent gets it as well, that is the cause.
void AgentLoop::await_same_signal() {
  const Deadline deadline = Deadline::after(kSameSignalIn);
  while (!is_stopping_ && !deadline.is_past()) {
    pollfd readable{.fd = signals_.get(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, deadline.timeout_ms());
    take_signals();
  }
}

void AgentLoop::signal_ranks(int signal) {
  // Signals that end a rank go to its whole process group, as they do from a terminal, so that they reach a
  // program behind a wrapping shell. Signals that only inform go to the rank alone, because they would kill
  // its children, such as data loaders.
  if (signal == SIGINT || signal == SIGTERM || signal == SIGKILL) begin_end();
  for (const RankProcess& rank : ranks_)
    if (!rank.has_ended && rank.pid > 0) kill(informs_ranks(signal) ? rank.pid : -rank.pid, signal);
}

// The ranks are about to be told to end.
void AgentLoop::begin_end() {
  // Without the file, a rank that ends is taken for lost by those that end later, and they say so.
  const UniqueFd file(open(stop_file().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  leave_unstarted({.was_stopped = 1, .trouble = "stopped by rueda before its start"});
}

// first: the signal that the ranks get now; 0: they have it. Ranks that were told before are not told again.
void AgentLoop::stop(Nanos grace, int first) {
  const Nanos kill_at = monotonic_now() + std::max<Nanos>(grace, 1);
  kill_at_ = kill_at_ == 0 ? kill_at : std::min(kill_at_, kill_at);
  if (std::exchange(is_stopping_, true)) return;
  begin_end();
  if (first == 0) return;
  signal_ranks(first);
  signal_ranks(SIGCONT);  // a stopped process does not act on SIGTERM
}

void AgentLoop::kill_ranks() {
  is_stopping_ = true;
  kill_at_ = 0;
  signal_ranks(SIGKILL);
}

}  // namespace rueda::launch
