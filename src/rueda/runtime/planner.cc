#include "rueda/runtime/planner.h"

#include <algorithm>
#include <unordered_set>

#include "rueda/base/log.h"

namespace rueda::runtime {
namespace {

// A bucket the others do not start for so long: they are busy, or will never come. Negotiation knows which,
// and reports it.
constexpr Nanos kPatience = kSecond;
constexpr Nanos kLookEvery = 5 * kMillisecond;  // for polls that have become waits

}  // namespace

Planner::Planner(Options options, Operations& operations, Dispatcher& dispatcher, EngineCounters& counters,
                 PlannerActions actions)
    : options_(options),
      operations_(operations),
      dispatcher_(dispatcher),
      counters_(counters),
      actions_(std::move(actions)),
      learner_(options.bucket_bytes) {}

control::PlanNews Planner::news() const {
  return {.generation = runner_.generation(), .started = runner_.started(), .sent = {}};
}

bool Planner::fits(const Operation& operation) const {
  return std::ranges::all_of(operation.tensors,
                             [&](const Tensor& tensor) { return runner_.fits(tensor.request); });
}

bool Planner::take(const std::shared_ptr<Operation>& operation) {
  if (runner_.is_open() && fits(*operation)) {
    for (const Tensor& tensor : operation->tensors) runner_.accept(tensor.request);
    taken_at_ = monotonic_now();
    actions_.is_taken(*operation);
    return true;
  }
  if (runner_.is_open()) depart("it submits " + operation->tensors.front().request.name);
  unanswered_.emplace(operation->handle, operation);
  return false;
}

void Planner::depart(const std::string& why) {
  if (!runner_.is_open()) return;
  RUEDA_LOG(kDebug, "this rank departs from plan " + std::to_string(runner_.generation()) + " after " +
                        std::to_string(runner_.started()) + " buckets: " + why + ".");
  runner_.freeze();
  actions_.tell_coordinator(control::FrameType::kPlanDepart, news());
}

bool Planner::accept(control::Response& response) {
  using Kind = control::Response::Kind;
  switch (response.kind) {
    case Kind::kPlanBucket:
      response.kind = Kind::kRun;
      arriving_.push_back(std::move(response));
      return true;
    case Kind::kPlanBegin:
      begin(response.tag);
      return true;
    case Kind::kPlanEnd:
      end(response);
      return true;
    default:
      answered(response);
      return false;
  }
}

void Planner::answered(const control::Response& response) {
  const auto has_me = [&](const std::vector<Rank>& ranks) {
    return std::ranges::find(ranks, options_.me) != ranks.end();
  };
  if (has_me(response.joined)) return;  // what this rank submitted since belongs to a later round
  for (const control::Entry& entry : response.entries) {
    if (response.kind == control::Response::Kind::kError && !has_me(entry.failed_ranks)) continue;
    const std::optional<TensorRef> ref = operations_.lookup(response.process_set, entry.name);
    if (ref) unanswered_.erase(ref->operation->handle);
  }
}

// What I submitted and the coordinator has not answered: it has forgotten it, and has every rank do as I do.
void Planner::begin(int64_t generation) {
  ++plans_begun_;
  count(counters_.plans);
  dispatcher_.set_generation(++generation_);
  runner_.begin(generation, std::exchange(arriving_, {}));
  started_at_ = monotonic_now();
  std::vector<control::Request> again;
  for (const auto& [handle, operation] : std::exchange(unanswered_, {})) {
    if (operation->is_done) continue;
    actions_.negotiation_is_over(*operation);
    if (take(operation)) continue;
    for (const Tensor& tensor : operation->tensors) again.push_back(tensor.request);
  }
  if (!again.empty()) actions_.negotiate(again);
}

void Planner::end(const control::Response& response) {
  const int64_t bucket = response.tag;
  count(counters_.departures);
  actions_.plan_is_over();
  dispatcher_.set_generation(++generation_);
  // What others have sent for the bucket that does not run must be taken before anything else is.
  std::vector<int32_t> arrivals(static_cast<size_t>(options_.ranks), 0);
  for (const control::Flow& flow : response.flows)
    if (flow.to == options_.me && flow.from < options_.ranks)
      arrivals[static_cast<size_t>(flow.from)] = flow.messages;
  if (runner_.started() > bucket) {
    dispatcher_.take_back(arrivals);
  } else {
    dispatcher_.resume();
    const bool has_arrivals = std::ranges::any_of(arrivals, [](int32_t messages) { return messages > 0; });
    if (has_arrivals) dispatcher_.enqueue_drained(runner_.bucket(bucket), std::move(arrivals));
  }
  std::vector<control::Request> again;
  std::map<int64_t, std::vector<size_t>> open;  // operation -> its tensors that were not reduced
  std::map<int64_t, std::shared_ptr<Operation>> operations;
  for (const std::string& name : runner_.finish(bucket)) {
    const std::optional<TensorRef> ref = operations_.lookup(0, name);
    if (!ref) continue;
    open[ref->operation->handle].push_back(ref->index);
    operations[ref->operation->handle] = ref->operation;
  }
  for (auto& [handle, indices] : open) {
    const std::shared_ptr<Operation>& operation = operations[handle];
    std::ranges::sort(indices);
    for (const size_t index : indices) {
      control::Request& request = again.emplace_back(operation->tensors[index].request);
      if (indices.size() == operation->tensors.size()) continue;
      // Part of the group is reduced, on every rank: the rest is no group any more.
      request.group_index = 0;
      request.group_size = 1;
      request.group_name.clear();
    }
    unanswered_.emplace(handle, operation);
  }
  if (!again.empty()) actions_.negotiate(again);
}

bool Planner::progress(Nanos now) {
  bool moved = false;
  while (dispatcher_.is_idle()) {
    const control::Response* next = runner_.next();
    if (next == nullptr) break;
    actions_.bucket_starts(*next);
    dispatcher_.enqueue_planned(*next);
    runner_.start_next();
    count(counters_.planned_batches);
    started_at_ = now;
    dispatcher_.progress();  // hands it to the backend
    dispatcher_.progress();  // shows it to the other ranks
    moved = true;
  }
  return moved;
}

void Planner::watch(Nanos now) {
  if (!runner_.is_open()) return;
  if (!dispatcher_.is_idle() && now - started_at_ > kPatience)
    return depart("the other ranks have not come for a second");
  if (runner_.waiting() == 0) return;
  if (dispatcher_.is_idle() && now - taken_at_ > kPatience)
    return depart("it has submitted nothing more for a second");
  if (operations_.wants() == seen_wants_ && now < next_look_) return;
  const uint64_t wants = operations_.wants();
  const std::vector<std::string> wanted = operations_.wanted_names(now);
  if (operations_.has_submitted()) return;  // what was submitted before the wait comes first
  seen_wants_ = wants;
  next_look_ = now + kLookEvery;
  for (const std::string& name : wanted)
    if (runner_.is_waiting_in_vain(name))
      return depart("it waits for " + name + " before it submits the rest of its bucket");
}

Nanos Planner::next_event() const {
  if (!runner_.is_open()) return std::numeric_limits<Nanos>::max();
  if (runner_.waiting() > 0) return next_look_;
  return dispatcher_.is_idle() ? std::numeric_limits<Nanos>::max() : started_at_ + kPatience;
}

void Planner::on_freeze(const control::PlanNews& frozen) {
  if (!runner_.is_active() || frozen.generation != runner_.generation()) return;
  runner_.freeze();
  control::PlanNews position = news();
  position.sent = dispatcher_.pause();
  actions_.tell_coordinator(control::FrameType::kPlanPosition, position);
}

void Planner::saw_submissions(std::span<const control::Request> requests) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const control::Request& request : requests)
    if (request.process_set == 0) learner_.saw_submission(request);
}

void Planner::saw_responses(std::span<const control::Response> responses) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const control::Response& response : responses) learner_.saw_response(response);
}

void Planner::propose(control::Coordinator& coordinator, Nanos now, TraceSink* trace) {
  if (!options_.may_plan || ledger_.is_active()) return;
  std::optional<std::vector<control::Response>> plan = learner_.take_plan();
  if (!plan) return;
  std::unordered_set<std::string> names;
  for (const control::Response& bucket : *plan)
    for (const control::Entry& entry : bucket.entries) names.insert(entry.name);
  if (!coordinator.may_begin_plan(names)) return;  // it will be learned again
  coordinator.forget_waiting(now, trace);
  const int64_t generation = plans_begun_ + 1;
  ledger_.begin(generation, options_.ranks);
  for (control::Response& bucket : *plan) bucket.kind = control::Response::Kind::kPlanBucket;
  control::Response begin;
  begin.kind = control::Response::Kind::kPlanBegin;
  begin.tag = generation;
  plan->push_back(std::move(begin));
  actions_.respond(std::move(*plan));
}

void Planner::on_depart(const control::PlanNews& departed) {
  if (ledger_.depart(departed.generation)) actions_.freeze_all(departed);
}

void Planner::on_position(Rank from, const control::PlanNews& position) {
  std::optional<control::PlanLedger::End> end = ledger_.stopped_at(from, position);
  if (!end) return;
  learner_.plan_ended(end->buckets);
  control::Response response;
  response.kind = control::Response::Kind::kPlanEnd;
  response.tag = end->buckets;
  response.flows = std::move(end->flows);
  std::vector<control::Response> responses;
  responses.push_back(std::move(response));
  actions_.respond(std::move(responses));
}

}  // namespace rueda::runtime
