// Signals that schedulers, or people, send to the agents of a job: they reach every rank, and once. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "rueda/base/clock.h"

namespace rueda::launch {

// SIGTERM, SIGINT and SIGHUP end a job.
bool ends_job(int signal);
// SIGUSR1, SIGUSR2 and SIGXCPU tell a rank something, such as that its time is nearly over.
bool informs_ranks(int signal);

// One agent. A scheduler signals the first process that it has started, the guardian, which passes the signal
// on to the worker; or every process that it finds below, the worker and the ranks included. The launcher may
// pass the same signal on, because another agent has got it.
class OutsideSignals {
 public:
  struct Answer {
    bool is_new = false;         // otherwise it is an echo
    bool goes_to_ranks = false;  // they do not have it yet
  };
  // sender: its pid. The worker got the signal itself, and so did the ranks.
  Answer on_spread(int signal, int sender, Nanos now);
  // The guardian got it, or the worker from somebody who does not signal ranks. Who signals both of them
  // sends one signal.
  enum class Way : uint8_t { kGuardian, kWorker };
  Answer on_own(int signal, int sender, Way way, Nanos now);
  // The launcher passes it on. Returns whether the ranks need it.
  bool on_launcher(int signal, Nanos now);

 private:
  struct Last {
    std::optional<Nanos> own, launcher;  // when it came
    int spread_by = 0;                   // the sender whose signal to the guardian will follow; 0 = none
    // The same sender may have sent these by the other way as well, and that has not come yet.
    int halves = 0;
    int half_by = 0;  // that sender
    Way half_way = Way::kGuardian;
  };
  std::map<int, Last> last_;
};

// The launcher: hosts whose scheduler did not signal them get what the agents of others have got.
class ReportedSignals {
 public:
  void on_own(int signal, Nanos now) { sent_[signal] = now; }  // it was sent to all hosts
  // host: an index
  void on_report(int host, int signal, Nanos now);
  struct Round {
    int signal = 0;
    std::set<int> told;  // hosts that have it
  };
  std::vector<Round> due(Nanos now);
  [[nodiscard]] Nanos next() const;  // 0 = none is planned

 private:
  struct Open {
    std::set<int> told;
    Nanos at = 0;
  };
  std::map<int, Open> open_;   // by signal
  std::map<int, Nanos> sent_;  // by signal: when all hosts had it
};

}  // namespace rueda::launch
