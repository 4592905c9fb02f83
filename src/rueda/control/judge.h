// Why ranks wait: names the rank at fault and the class of the fault while it happens. Rank 0 judges from
// what all ranks say about themselves (facts.h), from what it hears of them, and from the tensors that wait.
// docs/verdicts.md lists the classes. Pure: events in (time included), verdicts out.
//
// A verdict of this class never ends a job; runtime/failure_detector.h decides about that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"
#include "rueda/control/host_reachability.h"
#include "rueda/control/late_ranks.h"
#include "rueda/control/plan_waits.h"
#include "rueda/control/slow_ranks.h"
#include "rueda/control/stalls.h"
#include "rueda/control/verdict.h"

namespace rueda::control {

class Judge {
 public:
  struct Options {
    Rank me = 0;  // is not judged as a process
    Rank ranks = 1;
    Nanos limit = 5 * kSecond;        // for so long others must have waited, or a rank must have been silent
    std::vector<Rank> hosts = {};     // by rank: the first rank of its host; empty: each is a host of its own
    bool ends_stopped_ranks = false;  // the launcher, soon, because the job is elastic
    bool judges_first = false;        // another rank than the root: it says whether the root can be reached
    Rank root = 0;
    // By rank: through whom the root hears of it; empty: the root hears of all ranks by itself.
    std::vector<Rank> parents = {};
  };
  Judge(const Options& options, Nanos now);

  void heard(Rank from, Nanos now);
  // What a rank says; also this rank. on_facts counts its peer processes, too.
  void on_facts(Rank from, Facts facts, Nanos now);
  // seen: when that was so, if this rank hears of it later.
  void on_peer(const PeerProcess& peer, Nanos now, Nanos seen);
  void on_peer(const PeerProcess& peer, Nanos now) { on_peer(peer, now, now); }

  // Of which ranks this rank's network stack has heard nothing. on_facts counts those of its rank, too.
  void on_unreached(const std::vector<Unreached>& unreached, Nanos now) {
    reachability_.on_facts(options_.me, unreached, now);
  }

  // How the agent of a rank's host is; until it is said again.
  void on_agents(std::function<Agent(Rank)> agent_of) { agent_of_ = std::move(agent_of); }

  // Ranks whose processes are stopped or in a debugger, as far as this rank has heard.
  [[nodiscard]] std::vector<PeerProcess> held(Nanos now) const;
  // The learned plan of which waits_in_plan() tells, until another is given; as in plan_waits().
  void look_at(const PlanLedger& plan) { plan_ = &plan; }
  // Tensors of the learned plan that wait, as far as the facts tell.
  [[nodiscard]] std::vector<StalledTensor> waits_in_plan() const;
  // waits: what waits for limit() or longer, outside of plans. Each verdict is said once, and once more when
  // it is over; a late rank as late_ranks.h says.
  // stragglers: as StragglerDetector says.
  std::vector<Verdict> tick(const std::vector<StalledTensor>& waits, Nanos now,
                            const std::vector<StragglerDetector::Straggler>& stragglers = {});
  [[nodiscard]] Nanos limit() const { return options_.limit; }

 private:
  struct Sample {
    Nanos when = 0;  // it came; answers that had queued up come all at once
    ProcessUse use;
  };
  struct Known {  // of one rank
    Nanos heard = 0;
    Facts facts;
    Nanos facts_at = 0;          // 0: none yet
    std::deque<Sample> samples;  // oldest first, a few seconds
    ProcessState state = ProcessState::kUnknown;
    Nanos state_since = 0, state_heard = 0;  // first and last heard here
    Nanos state_began = 0, state_seen = 0;   // first and last seen to be so
    Nanos held_until = 0;  // its process did not run or did not answer, or one of its connections was cut
  };
  using Found = std::map<Rank, Verdict>;
  struct Said {
    Verdict verdict;
    Nanos since = 0;  // when the fault began
    Nanos at = 0;     // when it was said
  };
  [[nodiscard]] Known& known(Rank rank) { return known_[static_cast<size_t>(rank)]; }
  [[nodiscard]] const Known& known(Rank rank) const { return known_[static_cast<size_t>(rank)]; }
  void excuse_all(Nanos now);
  [[nodiscard]] bool is_root() const { return options_.me == options_.root; }
  [[nodiscard]] Rank parent_of(Rank rank) const;  // -1: the root hears of it by itself
  // Nobody can have heard of this rank, because a leader above it is not heard of.
  [[nodiscard]] bool is_behind_silence(Rank rank, Nanos now) const;
  [[nodiscard]] static bool is_held(const Known& one, Nanos now);
  // When that verdict about a process ended.
  [[nodiscard]] Nanos end_of(const Verdict& verdict, Nanos now) const;
  [[nodiscard]] bool is_process_judged(Rank rank, Nanos now, Verdict& verdict) const;
  // age: of the wait, as far as the rank could have ended it.
  [[nodiscard]] Verdict late(Rank rank, const StalledTensor& wait, Nanos age, const StalledTensor* other,
                             Nanos now) const;
  [[nodiscard]] Found find_late(const std::vector<StalledTensor>& waits, const std::set<Rank>& held,
                                Nanos now) const;
  std::vector<Verdict> find_not_finite(Nanos now);
  std::vector<Verdict> find_slow(const std::vector<StragglerDetector::Straggler>& stragglers,
                                 const std::set<Rank>& told, Nanos now);
  [[nodiscard]] int core_percent(Rank rank, Nanos since) const;
  [[nodiscard]] bool is_swapping(Rank rank) const;
  // Whether this verdict about a process is to be said: not if the same rank had several of late, unless it
  // lasts. Counts those that are said.
  bool is_said(Verdict& verdict, Nanos now);
  std::vector<Verdict> compare(const Found& processes, Nanos now);
  // Whether the host of this rank cannot be reached and the verdict about a lower rank of that host says so.
  [[nodiscard]] bool is_named_by_its_host(Rank rank, const Found& processes) const;

  Options options_;
  const PlanLedger* plan_ = nullptr;
  std::vector<Known> known_;   // [ranks]
  std::map<Rank, Said> said_;  // of processes
  std::map<Rank, std::deque<Nanos>> said_times_;
  LateRanks late_;
  SlowRanks slow_;
  HostReachability reachability_;
  std::function<Agent(Rank)> agent_of_ = [](Rank) { return Agent::kUnknown; };
  Nanos last_tick_, next_tick_;
  Nanos not_finite_since_ = 0;  // a rank has said so; 0 = none has
  bool has_said_not_finite_ = false;
};

}  // namespace rueda::control
