#include "rueda/runtime/learned_plans.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rueda/base/log.h"

namespace rueda::runtime {

LearnedPlans::LearnedPlans(Options options, Operations& operations, Dispatcher& dispatcher,
                           ReadyStreams& ready_streams, EngineCounters& counters, TraceSink& trace)
    : operations_(operations),
      dispatcher_(dispatcher),
      ready_streams_(ready_streams),
      counters_(counters),
      trace_(trace),
      planner_(std::move(options)) {}

control::Planner::Decision LearnedPlans::take(const std::shared_ptr<Operation>& operation) {
  if (operation->set_change) return planner_.submitted(operation->handle, {*operation->set_change});
  requests_.clear();
  places_.clear();
  for (Tensor& tensor : operation->tensors) {
    requests_.push_back(&tensor.request);
    places_.push_back(&tensor.planned);
  }
  control::Planner::Decision decision =
      planner_.submitted(operation->handle, requests_, monotonic_now(), places_);
  for (size_t i = 0; i < decision.positions.size(); ++i)
    waiting_[decision.positions[i]] = TensorRef{operation, i};
  mark_full_buckets(decision.positions);
  return decision;
}

// What is enqueued behind the last tensor of a bucket is nothing that the bucket must wait for, and it may be
// long before the bucket starts.
void LearnedPlans::mark_full_buckets(std::span<const size_t> positions) {
  control::PlanRunner::Positions last;
  for (const size_t position : positions) {
    if (position - last.first < last.count) continue;
    const std::optional<control::PlanRunner::Positions> full = planner_.full_bucket_of(position);
    if (!full) continue;
    last = *full;
    for (std::optional<TensorRef>& tensor : std::span(waiting_).subspan(last.first, last.count))
      if (tensor && tensor->has_tensor()) ready_streams_.mark(tensor->tensor());
  }
}

Result<std::optional<control::PlannerActions>> LearnedPlans::accept(control::Response& response) {
  const bool begins = std::holds_alternative<control::PlanBegin>(response);
  if (begins) forget_finished();
  Result<std::optional<control::PlannerActions>> actions = planner_.response(response, monotonic_now());
  if (begins && actions.is_ok()) find_waiting();
  return actions;
}

// What was submitted before the plan began, and belongs to it.
void LearnedPlans::find_waiting() {
  waiting_.assign(planner_.planned_tensors(), std::nullopt);
  planner_.for_each_waiting([this](size_t position, const control::LeftOver& submitted) {
    waiting_[position] = operations_.lookup(submitted.request.process_set, submitted.request.name);
  });
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

std::optional<control::StartBucket> LearnedPlans::next(Nanos now) {
  if (!dispatcher_.has_room_for(planner_.started())) return std::nullopt;
  return planner_.room(now, dispatcher_.order().first_open_bucket(planner_.started()));
}

control::PlannerActions LearnedPlans::tick(Nanos now) {
  if (dispatcher_.take_moved()) planner_.moved(now);
  return planner_.tick(now, dispatcher_.is_idle());
}

control::PlannerActions LearnedPlans::wanted(Nanos now) {
  if (!planner_.asks_for_wanted(now, operations_.wants())) return {};
  const uint64_t wants = operations_.wants();
  if (operations_.has_submitted()) return {};  // what was submitted before the wait comes first
  return planner_.wanted(now, wants, [&](size_t position) {
    return waiting_[position] && waiting_[position]->operation->is_wanted(now);
  });
}

void LearnedPlans::carry_out(control::PlanBegun&) {
  count(counters_.plans);
  count(counters_.meters->plans_begun);
  departure_.clear();
  trace_.record(instant_span(SpanKind::kPlanBegins, {}));
}

void LearnedPlans::note(const control::TellDeparture& told) {
  departure_ = told.why;
  RUEDA_LOG(kDebug, "this rank departs from plan " + std::to_string(told.news.plan_number) + " after " +
                        std::to_string(told.news.started) + " buckets: " + told.why + ".");
}

void LearnedPlans::carry_out(control::PlanOver& over) {
  waiting_.clear();
  dispatcher_.forget_planned();
  count(counters_.departures);
  count(counters_.meters->plans_left);
  const std::string why = over.is_change       ? "other buckets are tried"
                          : departure_.empty() ? "another rank departed"
                                               : departure_;
  trace_.record(instant_span(SpanKind::kPlanEnds, why));
}

void LearnedPlans::carry_out(control::StartBucket& started) {
  const std::span tensors =
      std::span(waiting_).subspan(started.first_position, started.bucket->entries.size());
  dispatcher_.enqueue_planned(started, tensors);
  count(counters_.planned_batches);
}

void LearnedPlans::carry_out(control::Discard& discarded) {
  dispatcher_.enqueue_discarded(std::move(discarded.bucket), discarded.number, std::move(discarded.arrivals));
}

}  // namespace rueda::runtime
