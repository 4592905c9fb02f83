#include "rueda/control/rounds.h"

#include <utility>

namespace rueda::control {

void Rounds::submitted(const RankSet& from, int64_t plans_begun, const SharedRequests& requests, Nanos now,
                       TraceSink* trace) {
  const bool is_recorded = trace != nullptr && trace->wants_details();
  const bool can_wait = !is_recorded && from.last() < world_size_;  // others are refused by themselves
  if (can_wait && held_.requests == requests && held_.plans_begun == plans_begun &&
      held_.from.common(from).is_empty()) {
    held_.from.add(from);
    return;
  }
  pass_on_held();
  held_ = {.from = from, .plans_begun = plans_begun, .requests = requests, .at = now, .trace = trace};
  if (!can_wait) pass_on_held();
}

void Rounds::pass_on_held() {
  if (held_.requests == nullptr) return;
  const Held held = std::exchange(held_, {});
  // The sender had not yet seen the last plan begin. It puts these requests into the plan, or sends them
  // again.
  if (held.plans_begun != planner_.maker().plans_announced()) return;
  planner_.maker().saw_submissions(*held.requests, held.at);
  coordinator_.submit(held.from, held.requests, held.at, held.trace);
}

std::vector<StallReport> Rounds::take_stalls(Nanos now, std::vector<StalledTensor> in_plan) {
  pass_on_held();
  if (now < next_stall_check_ && in_plan.empty()) return {};
  std::vector<StallReport> reports = coordinator_.check_stalls(now, std::move(in_plan));
  next_stall_check_ = coordinator_.next_check(now);
  return reports;
}

std::vector<Response> Rounds::take_round(Nanos now, size_t backlog) {
  pass_on_held();
  if (backlog > 0) coordinator_.moves(now);
  if (planner_.maker().holds_back() || backlog >= options_.max_backlog || now < next_round_) return {};
  std::vector<Response> responses = coordinator_.take_ready();
  if (responses.empty()) return responses;
  next_round_ = now + options_.cycle_time;
  planner_.maker().saw_responses(responses);
  return responses;
}

PlannerActions Rounds::responded() {
  pass_on_held();
  PlannerActions actions = planner_.maker().propose(coordinator_);
  if (!actions.empty()) coordinator_.forget_waiting();
  return actions;
}

}  // namespace rueda::control
