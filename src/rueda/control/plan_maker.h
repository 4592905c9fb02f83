// The part of rank 0 in learned plans: it learns what recurs, begins plans, ends them when a rank departs,
// and begins them anew with other buckets (tuner.h). Its actions are the planner's (planner.h), who holds it.
// A pure state machine: events in (time included), actions out. No I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/coordinator.h"
#include "rueda/control/plan_actions.h"
#include "rueda/control/plan_learner.h"
#include "rueda/control/plans.h"
#include "rueda/control/tuner.h"

namespace rueda::control {

class PlanMaker {
 public:
  struct Options {
    bool may_plan = false;  // whether it proposes plans; false on other ranks than rank 0
    int64_t bucket_bytes = 1 << 20;
    Rank ranks = 1;
    BackendTraitsLookup traits_of = default_traits;
    Tuner::Options tuner = {};
  };
  explicit PlanMaker(Options options)
      : options_(std::move(options)),
        tuner_(options_.tuner, {.bucket_bytes = options_.bucket_bytes, .traits_of = options_.traits_of}) {}

  void saw_submissions(std::span<const Request> requests, Nanos now);
  void saw_responses(std::span<const Response> responses);
  // Begins a plan, if one has been learned and nothing prevents it. If there are actions, the coordinator
  // must forget what waits.
  PlannerActions propose(const Coordinator& coordinator);
  PlannerActions on_depart(const PlanReport& news);
  // Fails if the position cannot be true.
  Result<PlannerActions> on_position(Rank from, const PlanReport& news);
  // Nothing else runs while a plan is active: responses wait for its end.
  [[nodiscard]] bool holds_back() const { return ledger_.is_active(); }
  // Of the plan that is active.
  [[nodiscard]] const PlanLedger& ledger() const { return ledger_; }
  // How many plans a rank has seen begin that has heard of all of them.
  [[nodiscard]] int64_t plans_announced() const { return plans_announced_; }

  // If the plan ends for other buckets, none begins after it.
  void keep_ended() { is_changing_ = false; }

  // ---- of the plan on rank 0, for the tuner ----
  void pass_begins(Nanos now) {
    if (options_.may_plan) tuner_.pass_begins(now);
  }
  // Rank 0 has submitted the tensors at these positions of the plan.
  void taken(std::span<const size_t> positions, Nanos now);
  // Rank 0 stands between two passes, and nothing is under way. here: its position. Ends the plan if other
  // buckets are wanted.
  PlannerActions between_passes(const PlanReport& here, Nanos now);
  std::vector<Tuner::News> take_news() { return tuner_.take_news(); }
  [[nodiscard]] const BucketWay& best_way() const { return tuner_.best(); }

 private:
  // Tells all ranks that a plan of these buckets begins.
  void announce(std::vector<Bucket> plan, const SetMembers& sets, std::vector<Response>& responses);

  Options options_;
  PlanLearner learner_;
  Tuner tuner_;
  PlanLedger ledger_;
  int64_t plans_announced_ = 0;
  SetMembers planned_sets_;      // of the plan that is active
  bool is_changing_ = false;     // it ends so that one with other buckets begins
  int64_t passes_before_ = 0;    // of plans that have ended so, one after the other
  int64_t told_at_ = 0;          // between which passes the tuner was told last: here.started
  std::vector<bool> are_large_;  // large_tensors() of the plan
  Nanos last_large_ = 0;         // when rank 0 has submitted the last one
};

}  // namespace rueda::control
