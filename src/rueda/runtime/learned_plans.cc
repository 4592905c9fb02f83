#include "rueda/runtime/learned_plans.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rueda/base/log.h"

namespace rueda::runtime {

LearnedPlans::LearnedPlans(Options options, Operations& operations, Dispatcher& dispatcher,
                           EngineCounters& counters, PlanCallbacks callbacks)
    : operations_(operations),
      dispatcher_(dispatcher),
      counters_(counters),
      callbacks_(std::move(callbacks)),
      planner_(std::move(options)) {}

bool LearnedPlans::take(const std::shared_ptr<Operation>& operation) {
  requests_.clear();
  for (const Tensor& tensor : operation->tensors) requests_.push_back(&tensor.request);
  control::Planner::Decision decision =
      operation->set_change ? planner_.submitted(operation->handle, {*operation->set_change})
                            : planner_.submitted(operation->handle, requests_, monotonic_now());
  carry_out(std::move(decision.actions));
  return decision.is_taken;
}

Result<bool> LearnedPlans::accept(control::Response& response) {
  if (std::holds_alternative<control::PlanBegin>(response)) forget_finished();
  Result<std::optional<control::PlannerActions>> decided = planner_.response(response, monotonic_now());
  if (!decided.is_ok()) return decided.status();
  if (!decided.value()) return false;
  carry_out(std::move(*decided.value()));
  return true;
}

Status LearnedPlans::on_position(Rank from, const control::PlanReport& news) {
  Result<control::PlannerActions> actions = planner_.on_position(from, news);
  if (!actions.is_ok()) return actions.status();
  carry_out(std::move(actions).value());
  return Status::ok();
}

// An operation that failed while it waited for an answer is not begun again.
void LearnedPlans::forget_finished() {
  const auto is_open = [&](control::OperationId handle, const control::Request& request) {
    const auto& [process_set, name] = control::name_of(request);
    const std::optional<TensorRef> ref = operations_.lookup(process_set, name);
    return ref && ref->operation->handle == handle && !ref->operation->is_done;
  };
  std::vector<control::OperationId> finished;
  for (const auto& [handle, requests] : planner_.unanswered()) {
    if (std::ranges::none_of(requests, [&](const auto& request) { return is_open(handle, request); }))
      finished.push_back(handle);
  }
  for (const control::OperationId handle : finished) planner_.forget(handle);
}

bool LearnedPlans::progress(Nanos now) {
  bool moved = false;
  while (dispatcher_.has_room_for(planner_.started())) {
    std::optional<control::StartBucket> started = planner_.room(now);
    if (!started) break;
    carry_out(*started);
    dispatcher_.progress();  // hands it to the backend
    dispatcher_.progress();  // shows it to the other ranks
    moved = true;
  }
  return moved;
}

void LearnedPlans::watch(Nanos now) {
  if (dispatcher_.take_moved()) planner_.moved(now);
  carry_out(planner_.tick(now, dispatcher_.is_idle()));
  if (!planner_.asks_for_wanted(now, operations_.wants())) return;
  const uint64_t wants = operations_.wants();
  const std::vector<std::string> wanted = operations_.wanted_names(now);
  if (operations_.has_submitted()) return;  // what was submitted before the wait comes first
  carry_out(planner_.wanted(now, wants, wanted));
}

void LearnedPlans::carry_out(control::PlannerActions actions) {
  for (control::PlannerAction& action : actions) std::visit([this](auto& one) { carry_out(one); }, action);
}

void LearnedPlans::carry_out(control::PlanBegun&) {
  count(counters_.plans);
  count(counters_.meters->plans_begun);
  departure_.clear();
  callbacks_.plan_begins();
}

void LearnedPlans::carry_out(control::TellDeparture& told) {
  departure_ = told.why;
  RUEDA_LOG(kDebug, "this rank departs from plan " + std::to_string(told.news.plan_number) + " after " +
                        std::to_string(told.news.started) + " buckets: " + told.why + ".");
  callbacks_.tell_coordinator(control::MessageType::kPlanDepart, told.news);
}

void LearnedPlans::carry_out(control::TellPosition& told) {
  told.news.under_way = dispatcher_.pause();
  callbacks_.tell_coordinator(control::MessageType::kPlanPosition, told.news);
}

void LearnedPlans::carry_out(control::PlanOver&) {
  count(counters_.departures);
  count(counters_.meters->plans_left);
  callbacks_.plan_is_over(departure_.empty() ? "another rank departed" : departure_);
}

void LearnedPlans::carry_out(control::StartBucket& started) {
  callbacks_.bucket_starts();
  dispatcher_.enqueue_planned(std::move(started.bucket), started.number);
  count(counters_.planned_batches);
}

void LearnedPlans::carry_out(control::Discard& discarded) {
  dispatcher_.enqueue_discarded(std::move(discarded.bucket), discarded.number, std::move(discarded.arrivals));
}

}  // namespace rueda::runtime
