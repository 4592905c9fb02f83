// The part of JobRunner that handles signals: those that come to the launcher, and those that its agents
// report.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launch/job_runner.h"
#include "launch/notices.h"

namespace rueda::launch {

void JobRunner::read_stdin() {
  std::array<char, 256> ignored;
  const ssize_t size = read(STDIN_FILENO, ignored.data(), ignored.size());
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) return;
  options_.is_stdin_watched = false;
  is_orphaned_ = true;
  if (stop_plan_.interrupt() == 0) on_signal(SIGTERM);
}

void JobRunner::on_signal(int signal) {
  const auto forward = [&] {
    reported_signals_.on_own(signal, monotonic_now());
    ByteWriter writer;
    writer.put(static_cast<int32_t>(signal));
    agents_.broadcast(MessageType::kSignal, writer.bytes());
  };
  switch (stop_plan_.on_signal(signal, phase_ != Phase::kStarting, monotonic_now())) {
    case StopPlan::Answer::kSuspend:
      return suspend();
    case StopPlan::Answer::kForward:
      return forward();
    case StopPlan::Answer::kKnown:
      return;
    case StopPlan::Answer::kKill:
      say("killing the ranks now");
      return agents_.broadcast(MessageType::kKill);
    case StopPlan::Answer::kAbandonStart:
      return fail_start({Code::kShutDown, "interrupted before the ranks were started"});
    case StopPlan::Answer::kInterrupt:
      output_.say(interrupt_notice(signal, options_.grace_s));
      if (signal == SIGINT) forward();
      return;
  }
}

// Ctrl-Z: the ranks stop with us, and their agents do not take our silence for death.
void JobRunner::suspend() {
  const auto tell = [this](uint8_t is_held, int32_t signal) {
    ByteWriter hold;
    hold.put(is_held);
    ByteWriter rank_signal;
    rank_signal.put(signal);
    agents_.broadcast(MessageType::kHold, hold.bytes());
    agents_.broadcast(MessageType::kSignal, rank_signal.bytes());
  };
  tell(1, SIGSTOP);
  kill(getpid(), SIGSTOP);
  tell(0, SIGCONT);
  agents_.excuse_silence(monotonic_now());
}

// A scheduler has signalled an agent. Its ranks have the signal; those of other hosts may not.
void JobRunner::on_reported(const HostLink& link, std::span<const std::byte> payload) {
  const int signal = ByteReader(payload).get<int32_t>();
  const Nanos now = monotonic_now();
  if (elastic_ && (signal == SIGTERM || link.has_joined()) && ends_job(signal) && phase_ == Phase::kRunning &&
      stop_plan_.interrupt() == 0 && elastic_->on_host_leaving(link))
    return;
  if (ends_job(signal) && stop_plan_.on_report(signal, now)) {
    agents_.broadcast(MessageType::kSignalled, payload);  // at once: we may be the next to be ended
    output_.say(reported_notice(link.host(), signal, options_.grace_s));
  }
  // For SIGTERM and SIGHUP the stop plan has a step.
  const auto host = static_cast<int>(&link - agents_.links().data());
  if (signal == SIGINT || informs_ranks(signal)) reported_signals_.on_report(host, signal, now);
}

void JobRunner::pass_on_reported(Nanos now) {
  for (const ReportedSignals::Round& round : reported_signals_.due(now)) {
    ByteWriter writer;
    writer.put(static_cast<int32_t>(round.signal));
    int host = 0;
    for (HostLink& link : agents_.links())
      if (!round.told.contains(host++) && !link.has_said_bye())
        link.send(MessageType::kSignal, writer.bytes());
  }
}

}  // namespace rueda::launch
