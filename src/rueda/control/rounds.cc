#include "rueda/control/rounds.h"

#include <utility>

namespace rueda::control {

void Rounds::submitted(const RankSet& from, int64_t plans_begun, const SharedRequests& requests, Nanos now,
                       TraceSink* trace) {
  // The sender had not yet seen the last plan begin. It puts these requests into the plan, or sends them
  // again.
  if (plans_begun != planner_.maker().plans_announced()) return;
  planner_.maker().saw_submissions(*requests, now);
  coordinator_.submit(from, requests, now, trace);
}

std::vector<StallReport> Rounds::take_stalls(Nanos now, std::vector<StalledTensor> in_plan) {
  if (now < next_stall_check_ && in_plan.empty()) return {};
  std::vector<StallReport> reports = coordinator_.check_stalls(now, std::move(in_plan));
  next_stall_check_ = coordinator_.next_check(now);
  return reports;
}

std::vector<Response> Rounds::take_round(Nanos now, size_t backlog) {
  if (backlog > 0) coordinator_.moves(now);
  if (planner_.maker().holds_back() || backlog >= options_.max_backlog || now < next_round_) return {};
  std::vector<Response> responses = coordinator_.take_ready();
  if (responses.empty()) return responses;
  next_round_ = now + options_.cycle_time;
  planner_.maker().saw_responses(responses);
  return responses;
}

PlannerActions Rounds::responded() {
  PlannerActions actions = planner_.maker().propose(coordinator_);
  if (!actions.empty()) coordinator_.forget_waiting();
  return actions;
}

}  // namespace rueda::control
