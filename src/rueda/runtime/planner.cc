#include "rueda/runtime/planner.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rueda/base/log.h"

namespace rueda::runtime {

Planner::Planner(Options options, Operations& operations, Dispatcher& dispatcher, EngineCounters& counters,
                 PlannerActions actions)
    : operations_(operations),
      dispatcher_(dispatcher),
      counters_(counters),
      actions_(std::move(actions)),
      decisions_(std::move(options)) {}

bool Planner::take(const std::shared_ptr<Operation>& operation) {
  if (operation->set_change) {
    carry_out(decisions_.submitted(operation->handle, *operation->set_change));
    return false;
  }
  requests_.clear();
  for (const Tensor& tensor : operation->tensors) requests_.push_back(&tensor.request);
  control::Planner::Submitted submitted = decisions_.submitted(operation->handle, requests_, monotonic_now());
  if (submitted.is_taken)
    for (const Tensor& tensor : operation->tensors) actions_.is_taken(tensor.request);
  else
    carry_out(std::move(submitted.actions));
  return submitted.is_taken;
}

Result<bool> Planner::accept(control::Response& response) {
  if (std::holds_alternative<control::PlanBegin>(response)) forget_finished();
  Result<std::optional<control::Actions>> decided = decisions_.response(response, monotonic_now());
  if (!decided.is_ok()) return decided.status();
  if (!decided.value()) return false;
  carry_out(std::move(*decided.value()));
  return true;
}

Status Planner::on_position(Rank from, const control::PlanNews& news) {
  Result<control::Actions> actions = decisions_.on_position(from, news);
  if (!actions.is_ok()) return actions.status();
  carry_out(std::move(actions).value());
  return Status::ok();
}

// An operation that failed while it waited for an answer is not begun again.
void Planner::forget_finished() {
  const auto is_open = [&](control::OperationId handle, const control::Request& request) {
    const auto& [process_set, name] = control::name_of(request);
    const std::optional<TensorRef> ref = operations_.lookup(process_set, name);
    return ref && ref->operation->handle == handle && !ref->operation->is_done;
  };
  std::vector<control::OperationId> finished;
  for (const auto& [handle, requests] : decisions_.unanswered()) {
    if (std::ranges::none_of(requests, [&](const auto& request) { return is_open(handle, request); }))
      finished.push_back(handle);
  }
  for (const control::OperationId handle : finished) decisions_.forget(handle);
}

bool Planner::progress(Nanos now) {
  bool moved = false;
  while (dispatcher_.has_room_for(decisions_.started())) {
    std::optional<control::StartBucket> started = decisions_.room(now);
    if (!started) break;
    carry_out(*started);
    dispatcher_.progress();  // hands it to the backend
    dispatcher_.progress();  // shows it to the other ranks
    moved = true;
  }
  return moved;
}

void Planner::watch(Nanos now) {
  if (dispatcher_.take_moved()) decisions_.moved(now);
  carry_out(decisions_.tick(now, dispatcher_.is_idle()));
  if (!decisions_.asks_for_wanted(now, operations_.wants())) return;
  const uint64_t wants = operations_.wants();
  const std::vector<std::string> wanted = operations_.wanted_names(now);
  if (operations_.has_submitted()) return;  // what was submitted before the wait comes first
  carry_out(decisions_.wanted(now, wants, wanted));
}

void Planner::carry_out(control::Actions actions) {
  for (control::Action& action : actions) std::visit([this](auto& one) { carry_out(one); }, action);
}

void Planner::carry_out(control::TellDeparture& told) {
  RUEDA_LOG(kDebug, "this rank departs from plan " + std::to_string(told.news.plan_number) + " after " +
                        std::to_string(told.news.started) + " buckets: " + told.why + ".");
  actions_.tell_coordinator(control::MessageType::kPlanDepart, told.news);
}

void Planner::carry_out(control::TellPosition& told) {
  told.news.under_way = dispatcher_.pause();
  actions_.tell_coordinator(control::MessageType::kPlanPosition, told.news);
}

void Planner::carry_out(control::NegotiationOver& over) {
  for (const control::Request& request : over.requests) {
    actions_.negotiation_is_over(request);
    if (over.is_taken) actions_.is_taken(std::get<control::TensorRequest>(request));
  }
}

void Planner::carry_out(control::PlanOver&) {
  count(counters_.departures);
  actions_.plan_is_over();
}

void Planner::carry_out(control::StartBucket& started) {
  actions_.bucket_starts(*started.bucket);
  dispatcher_.enqueue_planned(std::move(started.bucket), started.number);
  count(counters_.planned_batches);
}

void Planner::carry_out(control::Discard& discarded) {
  dispatcher_.enqueue_discarded(std::move(discarded.bucket), discarded.number, std::move(discarded.arrivals));
}

}  // namespace rueda::runtime
