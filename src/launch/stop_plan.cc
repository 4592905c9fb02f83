#include "launch/stop_plan.h"

#include <algorithm>
#include <csignal>

namespace rueda::launch {
namespace {

constexpr Nanos kAgentLead = kSecond;  // the agents kill their ranks this long before we ask for it
// From SIGKILL for the ranks to SIGKILL for the agents, and from there to giving up.
constexpr Nanos kForceAfter = 5 * kSecond;

// Our own signal within this time after a report is the same event.
constexpr Nanos kSameInterrupt = 2 * kSecond;

bool is_due(Nanos at, Nanos now) { return at != 0 && now >= at; }

}  // namespace

bool StopPlan::on_failure(Nanos now) {
  if (interrupt_ != 0 || stop_at_ != 0 || kill_at_ != 0 || force_at_ != 0) return false;
  began_ = now;
  stop_at_ = now + kOthersGrace;
  return true;
}

StopPlan::Answer StopPlan::on_signal(int signal, bool has_started, Nanos now) {
  if (signal == SIGTSTP) return Answer::kSuspend;
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU) return Answer::kForward;
  if (interrupt_ == signal && reported_at_ != 0 && now - reported_at_ < kSameInterrupt) return Answer::kKnown;
  if (interrupt_ != 0) {
    on_kill(now);
    return Answer::kKill;
  }
  interrupt_ = signal;
  if (!has_started) return Answer::kAbandonStart;
  if (signal == SIGINT) {
    stop_at_ = 0;
    kill_at_ = now + std::max<Nanos>(grace_, 1);
  } else {
    stop_at_ = now;
  }
  return Answer::kInterrupt;
}

bool StopPlan::on_report(int signal, Nanos now) {
  if (interrupt_ != 0) return false;
  interrupt_ = signal;
  reported_at_ = now;
  if (kill_at_ != 0 || force_at_ != 0) return true;
  if (signal == SIGINT) {
    stop_at_ = 0;
    kill_at_ = now + kTellingTakes + std::max<Nanos>(grace_, 1) + kAgentLead;
  } else {
    stop_at_ = now + kTellingTakes;
  }
  return true;
}

void StopPlan::on_kill(Nanos now) {
  stop_at_ = kill_at_ = 0;
  if (force_at_ != 0) return;
  force_at_ = now + kForceAfter;
  give_up_at_ = now + 2 * kForceAfter;
}

void StopPlan::on_failed_start(Nanos now) {
  force_at_ = now + kSecond;
  give_up_at_ = force_at_ + 2 * kSecond;
}

std::vector<StopPlan::Step> StopPlan::due(Nanos now) {
  std::vector<Step> steps;
  if (is_due(stop_at_, now)) {
    stop_at_ = 0;
    kill_at_ = now + grace_ + kAgentLead;
    steps.push_back(Step::kStop);
  }
  if (is_due(kill_at_, now)) {
    on_kill(now);
    steps.push_back(Step::kKill);
  }
  if (is_due(force_at_, now)) {
    force_at_ = now + kForceAfter;
    steps.push_back(Step::kForce);
  }
  if (is_due(give_up_at_, now)) {
    give_up_at_ = 0;
    steps.push_back(Step::kGiveUp);
  }
  return steps;
}

Nanos StopPlan::next() const {
  Nanos next = 0;
  for (const Nanos at : {stop_at_, kill_at_, force_at_, give_up_at_})
    if (at != 0 && (next == 0 || at < next)) next = at;
  return next;
}

StopPlan::HostLoss StopPlan::judge_loss(bool was_silent, Nanos last_heard, Nanos now) const {
  const bool is_stopping = kill_at_ != 0 || force_at_ != 0;
  const bool was_cut_off = was_silent && is_stopping && last_heard < began_;
  return {.at = was_silent ? last_heard : now,
          .was_stopped = interrupt_ != 0 || (is_stopping && !was_cut_off)};
}

}  // namespace rueda::launch
