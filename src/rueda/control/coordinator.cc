// Combines the parts of the coordinator: pending names (pending.h), ranks that have joined (joins.h),
// changes of process sets (process_sets.h), agreement (mismatch.h), responses (respond.h), their order
// (ready.h) and stalls (stalls.h).
#include "rueda/control/coordinator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "rueda/base/check.h"
#include "rueda/base/listing.h"
#include "rueda/base/log.h"
#include "rueda/control/check_request.h"
#include "rueda/control/mismatch.h"
#include "rueda/control/respond.h"

namespace rueda::control {
namespace {

// The most names that may wait in one set. No model has as many; a rank that reaches the limit
// submits without end.
constexpr size_t kMaxPending = 1u << 20;
constexpr size_t kMaxListed = 6;

FailedName failed_name(const PendingTensor& tensor) {
  return {.name = tensor.name, .ranks = tensor.submitted.ranks()};
}

// The answer to a change goes to all ranks at once, and so answers every open request of these names.
std::vector<FailedName> failed_names(const std::vector<ProcessSets::Asked>& match) {
  std::vector<FailedName> failed;
  for (const ProcessSets::Asked& one : match) {
    auto at = std::ranges::find(failed, one.change.name, &FailedName::name);
    if (at == failed.end()) at = failed.insert(at, {.name = one.change.name, .ranks = {}});
    at->ranks.push_back(one.rank);
  }
  return failed;
}

// The failure of a request of one rank; it concerns no other rank.
Response refusal(Rank from, const TensorRequest& request, const Status& why) {
  return make_failure(request.process_set, {{.name = request.name, .ranks = {from}}}, why);
}

Rank checked(Rank world_size) {
  RUEDA_CHECK(world_size >= 1, "a world has at least one rank");
  return world_size;
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options)
    : world_size_(checked(options.world_size)),
      sets_(world_size_, options.process_sets),
      joins_(world_size_),
      ready_({.fusion_bytes = options.fusion_bytes,
              .group_fusion_disabled = options.group_fusion_disabled,
              .traits_of = options.traits_of},
             std::min(options.fusion_bytes, options.priority_bytes)),
      stalls_({.is_disabled = options.stall_check_disabled,
               .warning = options.stall_warning,
               .shutdown = options.stall_shutdown}),
      who_(options.who) {
  std::vector<Rank> world(static_cast<size_t>(world_size_));
  std::iota(world.begin(), world.end(), 0);
  pending_.try_emplace(0, 0, std::move(world), joins_.ranks());
  for (const auto& [id, ranks] : sets_.sets()) pending_.try_emplace(id, id, ranks, joins_.ranks());
}

void Coordinator::submit(const RankSet& from, const SharedRequests& requests, Nanos now, TraceSink* trace) {
  if (from.first() < 0 || from.last() >= world_size_) {
    const Rank unknown = from.first() < 0 ? from.first() : from.last();
    RUEDA_LOG(kError,
              "Requests from rank " + std::to_string(unknown) + ", which does not exist, are ignored.");
    return;
  }
  now_ = now;
  moves(now);
  trace_ = trace != nullptr && trace->is_recording() ? trace : nullptr;
  std::vector<int32_t> touched;  // may contain an id more than once
  for (const Request& request : *requests) {
    if (const auto* change = std::get_if<SetChange>(&request)) {
      from.for_each([&](Rank rank) { submit_change(rank, SetChange(*change)); });
      continue;
    }
    const SharedTensor tensor(requests, &std::get<TensorRequest>(request));
    if (touched.empty() || touched.back() != tensor->process_set) touched.push_back(tensor->process_set);
    submit_one(from, tensor);
  }
  for (const int32_t id : touched)
    if (const auto at = pending_.find(id); at != pending_.end()) collect_conflicts(at->second);
}

void Coordinator::submit_one(const RankSet& from, const SharedTensor& request) {
  if (request->what == Collective::kJoin && request->process_set == 0)
    return from.for_each([&](Rank rank) { submit_join(rank, *request); });
  const int32_t id = request->process_set;
  submit_tensor(from, request);
  // After each request, so that the tensors of different sets become ready in the order in which
  // they were submitted.
  if (const auto at = pending_.find(id); at != pending_.end()) collect(at->second);
}

void Coordinator::submit_tensor(const RankSet& from, const SharedTensor& shared) {
  const TensorRequest& request = *shared;
  const auto at = pending_.find(request.process_set);
  const bool is_full =
      at != pending_.end() && at->second.waiting().size() + dependents_.size() >= kMaxPending;
  // No other rank can wait for a set that does not exist, so only these ranks get the error.
  const auto refuse = [&](const RankSet& ranks, const std::vector<Rank>* members) {
    ranks.for_each([&](Rank rank) {
      Status status = check_request(request, members, rank, world_size_);
      if (is_full)
        status = {Code::kUnavailable,
                  "More than " + std::to_string(kMaxPending) + " tensors wait for ranks."};
      ready_.add(refusal(rank, request, status));
    });
  };
  if (at == pending_.end() || is_full || request.name.empty()) return refuse(from, nullptr);
  PendingSet& set = at->second;
  if (set.member_set().includes(from)) return submit_to(set, from, shared);
  RankSet strangers = from;  // their own check refuses this too; only they are told
  strangers.remove(set.member_set());
  refuse(strangers, &set.members());
  if (const RankSet members = from.common(set.member_set()); !members.is_empty())
    submit_to(set, members, shared);
}

void Coordinator::submit_to(PendingSet& set, const RankSet& members, SharedTensor shared) {
  const Status fault = check_request(*shared, &set.members(), members.first(), world_size_);
  if (shared->group_size < 1 || shared->group_index < 0 || shared->group_index >= shared->group_size) {
    auto ungrouped = std::make_shared<TensorRequest>(*shared);
    ungrouped->group_size = 1;  // already a fault; it must not count as a member of a real group
    ungrouped->group_index = 0;
    shared = std::move(ungrouped);
  }
  // Two sets may use the same name at the same time, so only the sets to which rank 0 belongs are recorded.
  if (trace_ != nullptr && trace_->wants_details() && set.index_of(0) == 0) {
    members.for_each([&](Rank rank) {
      trace_->record(TraceSpan{.kind = SpanKind::kReady,
                               .begin = now_,
                               .end = now_,
                               .value = operation_code(shared->what, shared->op),
                               .text = shared->name,
                               .peer = set.index_of(rank)});
    });
  }
  set.submit({.ranks = members, .request = std::move(shared), .sequence = ++sequence_}, fault, now_);
}

void Coordinator::submit_join(Rank from, const TensorRequest& request) {
  if (!joins_.add(from, request, round_)) {
    const Status status{Code::kInvalidArgument,
                        "Rank " + std::to_string(from) + " has joined already; wait for the first join."};
    return ready_.add(refusal(from, request, status));
  }
  for (auto& [id, set] : pending_) {
    set.join(from);
    collect(set);
    collect_conflicts(set);
  }
  match_set_changes();
  if (joins_.is_everybody()) ready_.add(joins_.take());
}

void Coordinator::submit_change(Rank from, SetChange&& change) {
  std::string name = change.name;
  if (const Status status = sets_.push(from, std::move(change), now_); !status.is_ok()) {
    return ready_.add(make_failure(0, {{.name = std::move(name), .ranks = {from}}}, status));
  }
  match_set_changes();
}

void Coordinator::match_set_changes() {
  while (const std::optional<std::vector<ProcessSets::Asked>> match = sets_.take_match(joins_.has_joined())) {
    Result<ProcessSets::Outcome> outcome = sets_.judge(*match);
    if (!outcome.is_ok()) {
      ready_.add(make_failure(0, failed_names(*match), outcome.status()));
      continue;
    }
    std::visit([&](auto& change) { apply(std::move(change)); }, outcome.value());
  }
}

void Coordinator::apply(SetAdded added) {
  sets_.apply(added);
  pending_.try_emplace(added.id, added.id, added.ranks, joins_.ranks());
  ready_.add(std::move(added));
}

void Coordinator::apply(SetRemoved removed) {
  fail_outstanding(removed.id);
  sets_.apply(removed);
  ready_.add(std::move(removed));
}

void Coordinator::fail_outstanding(int32_t id) {
  const auto at = pending_.find(id);
  RUEDA_CHECK(at != pending_.end(), "every registered process set has a table of pending names");
  collect(at->second);
  collect_conflicts(at->second);
  Finished rest;
  rest.tensors = dependents_.take_all(id);
  std::ranges::move(at->second.take_all(), std::back_inserter(rest.tensors));
  rest.verdict = {Code::kMismatch,
                  "Process set " + std::to_string(id) +
                      " was removed while operations of it were outstanding; finish them first."};
  if (!rest.tensors.empty()) finish(at->second, std::move(rest));
  pending_.erase(at);
}

void Coordinator::collect(PendingSet& set) {
  for (Finished& finished : set.take_finished()) finish(set, std::move(finished));
}

void Coordinator::collect_conflicts(PendingSet& set) {
  for (Finished& finished : set.take_conflicts()) finish(set, std::move(finished));
}

void Coordinator::finish(const PendingSet& set, Finished finished) {
  Complete complete{.process_set = set.id(), .finished = std::move(finished), .unit = {}};
  complete.unit.is_group = complete.finished.is_group;
  const Status verdict = judge(set, complete.finished, complete.unit.candidates);
  if (verdict.is_ok() && dependents_.take(complete, unordered_before(complete))) return;
  if (verdict.is_ok()) {
    ready_.add(std::move(complete.unit));
  } else {
    std::vector<FailedName> failed;
    for (const auto& tensor : complete.finished.tensors) failed.push_back(failed_name(*tensor));
    ready_.add(make_failure(set.id(), std::move(failed), verdict));
  }
  if (dependents_.is_empty()) return;
  for (Complete& dependent : dependents_.after(complete.finished)) ready_.add(std::move(dependent.unit));
}

// Ids of the tensors that come before it and are not ordered yet. Its ranks name those of other process sets.
// In its own one they are complete too, and can only be dependents; it shares memory with some of them,
// perhaps.
std::set<uint64_t> Coordinator::unordered_before(const Complete& complete) const {
  std::set<uint64_t> ids, seen;  // each rank may name the same ones
  const Finished& finished = complete.finished;
  for (size_t i = 0; i < finished.tensors.size(); ++i) {
    if (!complete.unit.candidates[i].shares_memory) continue;
    const PendingTensor& tensor = *finished.tensors[i];
    const auto consider = [&](int32_t id, const PendingTensor* before) {
      if (before == nullptr || !seen.insert(before->id).second) return;
      if (pending_.at(id).comes_before(*before, tensor)) ids.insert(before->id);
    };
    for (const PendingTensor* before : dependents_.of_set(complete.process_set))
      consider(complete.process_set, before);
    for (const Arrival& one : tensor.arrivals) {
      for (const NameInSet& name : one.request->after) {
        const auto set = pending_.find(name.process_set);
        if (set == pending_.end()) continue;
        consider(name.process_set, set->second.find(name.name));
        consider(name.process_set, dependents_.find(name));
      }
    }
  }
  return ids;
}

// A group fails as a whole, with the error of its first member that has one.
Status Coordinator::judge(const PendingSet& set, const Finished& finished,
                          std::vector<Candidate>& out) const {
  if (!finished.verdict.is_ok()) return finished.verdict;
  for (const auto& tensor : finished.tensors) {
    RankSet joined = set.member_set();
    joined.remove(tensor->submitted);
    const std::vector<Rank> joined_ranks = joined.ranks();
    if (!tensor->fault.is_ok()) return tensor->fault;
    // Equal requests need no second look, except where the answer says something about each rank.
    const Collective what = tensor->first().what;
    const bool has_rows =
        what == Collective::kAllgather || what == Collective::kAlltoall || what == Collective::kReducescatter;
    const std::vector<Submission> some =
        has_rows ? submissions_of(*tensor) : different_submissions_of(*tensor);
    const CompleteTensor complete{some, set.members(), joined_ranks};
    if (!find_mismatch(complete).is_ok()) {
      const std::vector<Submission> all = submissions_of(*tensor);
      return mismatch({all, set.members(), joined_ranks});
    }
    out.push_back(make_candidate(complete));
  }
  return Status::ok();
}

Status Coordinator::mismatch(const CompleteTensor& complete) const {
  const Status status = find_mismatch(complete);
  const Outnumbered others = outnumbered_ranks(complete);
  if (status.code != Code::kMismatch || others.ranks.empty()) return status;
  const std::string line = mismatch_verdict(others.ranks, who_, status);
  RUEDA_LOG(kWarning, line);
  if (trace_ != nullptr) trace_->record(instant_span(SpanKind::kVerdict, line));
  return {status.code, status.why + outnumbered_text(others)};
}

Nanos Coordinator::oldest_request() const {
  Nanos since = StallWatch::kNobody;
  for (const auto& [id, set] : pending_)
    if (!set.waiting().empty()) since = std::min(since, set.waiting().front()->since);
  if (const auto change = sets_.waiting()) since = std::min(since, change->since);
  return since;
}

Nanos Coordinator::oldest() const {
  const Nanos since = oldest_request();
  return since == StallWatch::kNobody && !joins_.is_nobody() ? moved_at_ : since;
}

std::vector<StalledTensor> Coordinator::waiting_longer_than(Nanos age, Nanos when) const {
  std::vector<StalledTensor> stalled;
  for (const auto& [id, set] : pending_) {
    for (const PendingTensor* tensor : set.waiting()) {
      if (when - tensor->since < age) break;  // the rest is younger
      std::vector<Rank> missing = set.missing_ranks(*tensor);
      if (missing.empty()) continue;
      std::vector<Rank> waiting;
      for (const Arrival& one : tensor->arrivals)
        one.ranks.for_each([&](Rank rank) { waiting.push_back(rank); });
      stalled.push_back({tensor->name, operation_name(tensor->first()), id, when - tensor->since,
                         std::move(missing), std::move(waiting)});
    }
  }
  if (auto change = sets_.waiting(); change && when - change->since >= age)
    stalled.push_back(
        {change->name, "process set change", 0, when - change->since, std::move(change->missing), {}});
  const bool is_only_join = !joins_.is_nobody() && oldest_request() == StallWatch::kNobody;
  if (is_only_join && when - moved_at_ >= std::max(age, stalls_.least_age()))
    stalled.push_back(joins_.wait(when - moved_at_));
  return stalled;
}

std::vector<Response> Coordinator::take_ready() {
  ++round_;
  return ready_.take();
}

std::vector<StallReport> Coordinator::check_stalls(Nanos now, std::vector<StalledTensor> in_plan) {
  Nanos since = oldest();
  for (const StalledTensor& tensor : in_plan) since = std::min(since, now - tensor.age);
  if (!stalls_.is_due(since, now)) return {};
  std::erase_if(in_plan, [&](const StalledTensor& tensor) { return tensor.age < stalls_.least_age(); });
  for (StalledTensor& tensor : waiting_longer_than(stalls_.least_age(), now))
    in_plan.push_back(std::move(tensor));
  return stalls_.check(in_plan, now);
}

Nanos Coordinator::next_check(Nanos now) const { return stalls_.next_check(oldest(), now); }

std::string Coordinator::pending_summary() const {
  const std::vector<StalledTensor> waiting = waiting_longer_than(std::numeric_limits<Nanos>::min() / 2, 0);
  return list_first(waiting, kMaxListed, [](const StalledTensor& tensor) {
    return tensor.name + " waits for " + rank_list(tensor.missing);
  });
}

bool Coordinator::may_begin_plan(const std::function<bool(const TensorRequest&)>& is_planned) const {
  if (!ready_.is_empty() || !dependents_.is_empty() || !joins_.is_nobody() || sets_.waiting()) return false;
  return std::ranges::all_of(pending_, [&](const auto& one) {
    return std::ranges::all_of(one.second.waiting(),
                               [&](const PendingTensor* tensor) { return is_planned(tensor->first()); });
  });
}

void Coordinator::forget_waiting() {
  for (auto& [id, set] : pending_) (void)set.take_all();
}

const std::map<int32_t, std::vector<Rank>>& Coordinator::process_sets() const { return sets_.sets(); }

}  // namespace rueda::control
