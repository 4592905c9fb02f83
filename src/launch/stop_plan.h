// When the ranks of a job are told to end, when they are killed, and when their agents are given up. Pure:
// time is passed in, and the caller performs the steps.
#pragma once

#include <vector>

#include "rueda/base/clock.h"

namespace rueda::launch {

// Schedulers tell the hosts of a job one by one. This long after the first report, those that were not told
// are, so that no rank gets a signal twice.
inline constexpr Nanos kTellingTakes = 500 * kMillisecond;

// After the first failure the other ranks have this long to end by themselves, so that they can print a
// traceback that names the lost rank.
inline constexpr Nanos kOthersGrace = 2 * kSecond;

class StopPlan {
 public:
  explicit StopPlan(Nanos grace) : grace_(grace) {}

  // A rank or a host failed. Returns true if this begins the stop of the job.
  bool on_failure(Nanos now);

  enum class Answer {
    kSuspend,       // stop the ranks and then this process
    kForward,       // pass the signal to the ranks; the job goes on
    kInterrupt,     // ask the ranks to end: forward SIGINT; for other signals a step follows
    kKill,          // this is the second signal: kill the ranks now
    kAbandonStart,  // no rank runs yet: give up the start
    kKnown,         // the scheduler that ends the job has told us as well as an agent
  };
  Answer on_signal(int signal, bool has_started, Nanos now);
  // An agent was told to end by this signal: SIGINT, SIGTERM or SIGHUP. Returns true if this stops the job.
  bool on_report(int signal, Nanos now);
  void on_kill(Nanos now);          // the ranks are killed now
  void on_failed_start(Nanos now);  // no rank was started; the agents are being ended

  enum class Step {
    kStop,    // the agents send SIGTERM, and SIGKILL after the grace
    kKill,    // the agents send SIGKILL
    kForce,   // SIGKILL to the agents
    kGiveUp,  // stop waiting for the agents
  };
  // The steps that are due, in their order. Each is returned once, kForce every few seconds.
  std::vector<Step> due(Nanos now);
  [[nodiscard]] Nanos next() const;  // when the next step is due; 0 = none is planned

  // How the ranks of a lost host have ended.
  struct HostLoss {
    Nanos at = 0;
    bool was_stopped = false;
  };
  // A silent host was lost when it was last heard. If it has sent nothing since the first failure was
  // noticed, its loss is the cause of that failure and not a result of the stop.
  [[nodiscard]] HostLoss judge_loss(bool was_silent, Nanos last_heard, Nanos now) const;

  [[nodiscard]] bool is_killing() const { return force_at_ != 0; }
  [[nodiscard]] int interrupt() const {
    return interrupt_;
  }  // the signal by which the user stopped the job; 0 = none

 private:
  Nanos grace_;
  int interrupt_ = 0;
  Nanos reported_at_ = 0;  // when an agent told of the interrupt; 0 = it came to us
  Nanos began_ = 0;        // when the first failure was learnt
  Nanos stop_at_ = 0, kill_at_ = 0, force_at_ = 0, give_up_at_ = 0;  // 0 = not planned
};

}  // namespace rueda::launch
