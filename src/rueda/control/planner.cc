#include "rueda/control/planner.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace rueda::control {
namespace {

// A bucket the others do not start for so long: they are busy, or will never come. Negotiation knows which,
// and reports it.
constexpr Nanos kPatience = kSecond;
constexpr Nanos kLookEvery = 5 * kMillisecond;  // for polls that have become waits

void append(Actions& actions, Actions more) {
  for (Action& action : more) actions.push_back(std::move(action));
}

std::vector<const Request*> pointers_to(const std::vector<Request>& requests) {
  std::vector<const Request*> pointers;
  for (const Request& request : requests) pointers.push_back(&request);
  return pointers;
}

}  // namespace

PlanNews Planner::news() const {
  return {.generation = runner_.generation(), .started = runner_.started(), .sent = {}};
}

bool Planner::fits(std::span<const Request* const> requests) const {
  return std::ranges::all_of(requests, [&](const Request* request) { return runner_.fits(*request); });
}

void Planner::take(OperationId operation, std::span<const Request* const> requests, Nanos now) {
  for (const Request* request : requests) runner_.accept(*request, operation);
  taken_at_ = now;
}

void Planner::remember(OperationId operation, std::vector<Request> requests) {
  for (const Request& request : requests) operation_of_[{request.process_set, request.name}] = operation;
  unanswered_[operation] = std::move(requests);
}

void Planner::forget(OperationId operation) {
  const auto found = unanswered_.find(operation);
  if (found == unanswered_.end()) return;
  for (const Request& request : found->second) {
    const auto name = operation_of_.find({request.process_set, request.name});
    if (name != operation_of_.end() && name->second == operation) operation_of_.erase(name);
  }
  unanswered_.erase(found);
}

Planner::Submitted Planner::submitted(OperationId operation, std::span<const Request* const> requests,
                                      Nanos now) {
  Submitted out;
  if (runner_.is_open() && fits(requests)) {
    take(operation, requests, now);
    out.is_taken = true;
    return out;
  }
  if (runner_.is_open()) out.actions = depart("it submits " + requests.front()->name);
  std::vector<Request> copies;
  for (const Request* request : requests) copies.push_back(*request);
  remember(operation, std::move(copies));
  return out;
}

Actions Planner::depart(const std::string& why) {
  if (!runner_.is_open()) return {};
  runner_.freeze();
  return {TellDeparture{.news = news(), .why = why}};
}

std::optional<Actions> Planner::response(Response& response, Nanos now) {
  using Kind = Response::Kind;
  switch (response.kind) {
    case Kind::kPlanBucket:
      response.kind = Kind::kRun;
      arriving_.push_back(std::move(response));
      return Actions();
    case Kind::kPlanBegin:
      return begin(response.tag, now);
    case Kind::kPlanEnd:
      return end(response);
    default:
      answered(response);
      return std::nullopt;
  }
}

void Planner::answered(const Response& response) {
  const auto has_me = [&](const std::vector<Rank>& ranks) {
    return std::ranges::find(ranks, options_.me) != ranks.end();
  };
  if (has_me(response.joined)) return;  // what this rank submitted since belongs to a later round
  for (const Entry& entry : response.entries) {
    if (response.kind == Response::Kind::kError && !has_me(entry.failed_ranks)) continue;
    const auto found = operation_of_.find({response.process_set, entry.name});
    if (found != operation_of_.end()) forget(OperationId{found->second});
  }
}

// What I submitted and the coordinator has not answered: it has forgotten it, and has every rank do as I do.
Actions Planner::begin(int64_t generation, Nanos now) {
  ++plans_begun_;
  Actions actions;
  actions.emplace_back(PlanBegun{});
  actions.emplace_back(SetGeneration{.generation = ++generation_});
  runner_.begin(generation, std::exchange(arriving_, {}));
  started_at_ = now;
  std::vector<Request> again;
  operation_of_.clear();
  for (auto& [operation, requests] : std::exchange(unanswered_, {})) {
    const std::vector<const Request*> pointers = pointers_to(requests);
    const bool is_taken = runner_.is_open() && fits(pointers);
    actions.emplace_back(NegotiationOver{.requests = requests, .is_taken = is_taken});
    if (is_taken) {
      take(operation, pointers, now);
      continue;
    }
    append(actions, depart("it has submitted " + requests.front().name));
    again.insert(again.end(), requests.begin(), requests.end());
    remember(operation, std::move(requests));
  }
  if (!again.empty()) actions.emplace_back(Negotiate{.requests = std::move(again)});
  return actions;
}

Actions Planner::end(const Response& response) {
  const int64_t bucket = response.tag;
  Actions actions;
  actions.emplace_back(PlanOver{});
  actions.emplace_back(SetGeneration{.generation = ++generation_});
  // What others have sent for the bucket that does not run must be taken before anything else is.
  std::vector<int32_t> arrivals(static_cast<size_t>(options_.ranks), 0);
  for (const Flow& flow : response.flows)
    if (flow.to == options_.me && flow.from < options_.ranks)
      arrivals[static_cast<size_t>(flow.from)] = flow.messages;
  if (runner_.started() > bucket) {
    actions.emplace_back(Cancel{.arrivals = std::move(arrivals)});
  } else {
    actions.emplace_back(Resume{});
    const bool has_arrivals = std::ranges::any_of(arrivals, [](int32_t messages) { return messages > 0; });
    if (has_arrivals)
      actions.emplace_back(Drain{.bucket = runner_.bucket(bucket), .arrivals = std::move(arrivals)});
  }
  std::map<OperationId, std::vector<Request>> open;  // what was not reduced
  for (LeftOver& left : runner_.finish(bucket)) open[left.operation].push_back(std::move(left.request));
  std::vector<Request> again;
  for (auto& [operation, requests] : open) {
    std::ranges::sort(requests, {}, &Request::group_index);
    // Where a part of the group is reduced, it is so on every rank: the rest is no group any more.
    if (std::cmp_less(requests.size(), requests.front().group_size)) {
      for (Request& request : requests) {
        request.group_index = 0;
        request.group_size = 1;
        request.group_name.clear();
      }
    }
    again.insert(again.end(), requests.begin(), requests.end());
    remember(operation, std::move(requests));
  }
  if (!again.empty()) actions.emplace_back(Negotiate{.requests = std::move(again)});
  return actions;
}

std::optional<StartBucket> Planner::idle(Nanos now) {
  SharedResponse next = runner_.next();
  if (next == nullptr) return std::nullopt;
  runner_.start_next();
  started_at_ = now;
  return StartBucket{.bucket = std::move(next)};
}

Actions Planner::tick(Nanos now, bool is_idle) {
  if (!runner_.is_open()) return {};
  if (!is_idle && now - started_at_ > kPatience) return depart("the other ranks have not come for a second");
  if (is_idle && runner_.waiting() > 0 && now - taken_at_ > kPatience)
    return depart("it has submitted nothing more for a second");
  return {};
}

bool Planner::asks_for_wanted(Nanos now, uint64_t waits) const {
  return runner_.is_open() && runner_.waiting() > 0 && (waits != seen_waits_ || now >= next_look_);
}

Actions Planner::wanted(Nanos now, uint64_t waits, std::span<const std::string> names) {
  seen_waits_ = waits;
  next_look_ = now + kLookEvery;
  for (const std::string& name : names)
    if (runner_.is_waiting_in_vain(name))
      return depart("it waits for " + name + " before it submits the rest of its bucket");
  return {};
}

Nanos Planner::next_event(bool is_idle) const {
  if (!runner_.is_open()) return std::numeric_limits<Nanos>::max();
  if (runner_.waiting() > 0) return next_look_;
  return is_idle ? std::numeric_limits<Nanos>::max() : started_at_ + kPatience;
}

Actions Planner::on_freeze(const PlanNews& frozen) {
  if (!runner_.is_active() || frozen.generation != runner_.generation()) return {};
  runner_.freeze();
  return {TellPosition{.news = news()}};
}

void Planner::saw_submissions(std::span<const Request> requests) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const Request& request : requests)
    if (request.process_set == 0) learner_.saw_submission(request);
}

void Planner::saw_responses(std::span<const Response> responses) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const Response& response : responses) learner_.saw_response(response);
}

Actions Planner::propose(const Coordinator& coordinator) {
  if (!options_.may_plan || ledger_.is_active()) return {};
  std::optional<std::vector<Response>> plan = learner_.take_plan();
  if (!plan) return {};
  std::unordered_set<std::string> names;
  for (const Response& bucket : *plan)
    for (const Entry& entry : bucket.entries) names.insert(entry.name);
  if (!coordinator.may_begin_plan(names)) return {};  // it will be learned again
  const int64_t generation = plans_begun_ + 1;
  ledger_.begin(generation, options_.ranks);
  for (Response& bucket : *plan) bucket.kind = Response::Kind::kPlanBucket;
  Response begin;
  begin.kind = Response::Kind::kPlanBegin;
  begin.tag = generation;
  plan->push_back(std::move(begin));
  return {ForgetWaiting{}, Respond{.responses = std::move(*plan)}};
}

Actions Planner::on_depart(const PlanNews& departed) {
  if (!ledger_.depart(departed.generation)) return {};
  return {FreezeAll{.news = departed}};
}

Actions Planner::on_position(Rank from, const PlanNews& position) {
  std::optional<PlanLedger::End> end = ledger_.stopped_at(from, position);
  if (!end) return {};
  learner_.plan_ended(end->buckets);
  Response response;
  response.kind = Response::Kind::kPlanEnd;
  response.tag = end->buckets;
  response.flows = std::move(end->flows);
  std::vector<Response> responses;
  responses.push_back(std::move(response));
  return {Respond{.responses = std::move(responses)}};
}

}  // namespace rueda::control
