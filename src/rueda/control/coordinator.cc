// Puts the pieces together: pending names (pending.h), agreement (mismatch.h), responses (respond.h), fusion
// (fusion.h), process sets (process_sets.h), stalls (stalls.h). What is kept here is who has joined and the
// order.
#include "rueda/control/coordinator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "rueda/base/check.h"
#include "rueda/base/log.h"
#include "rueda/control/fusion.h"
#include "rueda/control/mismatch.h"
#include "rueda/control/pending.h"
#include "rueda/control/process_sets.h"
#include "rueda/control/respond.h"
#include "rueda/control/stalls.h"
#include "rueda/control/turns.h"

namespace rueda::control {
namespace {

// Names waiting in one set; far above any model. Beyond it a rank submits without end.
constexpr size_t kMaxPending = 1u << 20;
constexpr size_t kMaxListed = 6;

std::string negotiate_name(const PendingTensor& tensor) {
  return "NEGOTIATE_" + std::string(operation_name(tensor.submissions[0].request));
}

Entry failed_entry(const PendingTensor& tensor) {
  Entry entry{.name = tensor.name, .shape = tensor.submissions[0].request.shape, .rows = {}};
  for (const Submission& one : tensor.submissions) entry.failed_ranks.push_back(one.rank);
  return entry;
}

// The error of one rank's request that nobody else has a part in.
Response refusal(Rank from, const Request& request, const Status& why) {
  return make_error(
      request, {{.name = request.name, .shape = request.shape, .rows = {}, .failed_ranks = {from}}}, why);
}

}  // namespace

struct Coordinator::State {
  explicit State(CoordinatorOptions given)
      : options(std::move(given)),
        sets(options.world_size, options.process_sets),
        has_joined(static_cast<size_t>(options.world_size), false) {
    std::vector<Rank> world(static_cast<size_t>(options.world_size));
    std::iota(world.begin(), world.end(), 0);
    pending.try_emplace(0, 0, std::move(world), has_joined);
    for (const auto& [id, ranks] : sets.sets()) pending.try_emplace(id, id, ranks, has_joined);
  }

  void submit_one(Rank from, Request&& request);
  void submit_tensor(Rank from, Request&& request);
  void submit_join(Rank from, const Request& request);
  void submit_set_change(Rank from, Request&& request);
  void match_set_changes();
  void remove_set(int32_t id);
  void collect(PendingSet& set);
  void collect_conflicts(PendingSet& set);
  void finish(const PendingSet& set, Finished finished);
  void finish_joining();
  [[nodiscard]] Status judge(const PendingSet& set, const Finished& finished,
                             std::vector<Candidate>& out) const;
  void trace_event(TraceKind kind, const PendingSet& set, const PendingTensor& tensor, int64_t value) const;
  [[nodiscard]] std::vector<StalledTensor> waiting_longer_than(Nanos age, Nanos now) const;
  [[nodiscard]] Nanos oldest() const;
  [[nodiscard]] bool may_shutdown() const { return options.stall_shutdown >= options.stall_warning; }

  CoordinatorOptions options;
  ProcessSets sets;
  std::map<int32_t, PendingSet> pending;
  std::vector<std::variant<Unit, Response>> ready;  // in the order of becoming ready; emptied every round
  Turns turns;                                      // what is ready and has a priority

  std::vector<bool> has_joined;  // by world rank
  Rank joined_count = 0;
  Rank last_joined = -1;
  int64_t last_joined_round = -1;
  int64_t join_tag = 0;
  std::vector<std::string> join_names;  // the ranks may have called it differently
  int64_t round = 0;

  Nanos last_report = std::numeric_limits<Nanos>::min() / 2;
  ReportedStalls reported;
  // Of the call in progress.
  Nanos now = 0;
  TraceSink* trace = nullptr;
};

void Coordinator::State::trace_event(TraceKind kind, const PendingSet& set, const PendingTensor& tensor,
                                     int64_t value) const {
  // The coordinator's row shows only sets that rank 0 is in: two sets may use one name at the same time.
  if (trace == nullptr || set.index_of(0) != 0) return;
  const std::string name = negotiate_name(tensor);
  trace->emit({.kind = kind, .when = now, .track = tensor.name, .name = name, .value = value});
}

void Coordinator::State::submit_one(Rank from, Request&& request) {
  if (request.kind != Request::Kind::kTensor) return submit_set_change(from, std::move(request));
  if (request.what == Collective::kJoin && request.process_set == 0) return submit_join(from, request);
  submit_tensor(from, std::move(request));
}

void Coordinator::State::submit_tensor(Rank from, Request&& request) {
  const auto at = pending.find(request.process_set);
  const bool is_full = at != pending.end() && at->second.waiting().size() >= kMaxPending;
  if (at == pending.end() || is_full || request.name.empty()) {
    // Nobody else can be waiting for a set that does not exist, so the error meets only those who asked.
    Status status = check_request(request, nullptr, from, options.world_size);
    if (is_full)
      status = {Code::kUnavailable, "More than " + std::to_string(kMaxPending) + " tensors wait for ranks."};
    ready.emplace_back(refusal(from, request, status));
    return;
  }
  PendingSet& set = at->second;
  const Rank member = set.index_of(from);
  if (member < 0) {  // the rank's own check refuses this; only that rank is told
    ready.emplace_back(
        refusal(from, request, check_request(request, &set.members(), from, options.world_size)));
    return;
  }
  const Status fault = check_request(request, &set.members(), from, options.world_size);
  if (request.group_size < 1 || request.group_index < 0 || request.group_index >= request.group_size) {
    request.group_size = 1;  // a fault already; it must not upset the count of a real group
    request.group_index = 0;
  }
  if (trace == nullptr) {
    set.submit(from, std::move(request), fault, now);
    return;
  }
  // Events are made from a copy: the submission may complete the tensor and so remove it.
  PendingTensor shown;
  shown.name = request.name;
  shown.submissions.push_back({from, request});
  const bool is_barrier = request.what == Collective::kBarrier;
  if (!set.is_waiting(request.name)) trace_event(TraceKind::kBegin, set, shown, 0);
  if (!is_barrier) trace_event(TraceKind::kRankReady, set, shown, member);
  set.submit(from, std::move(request), fault, now);
}

void Coordinator::State::submit_join(Rank from, const Request& request) {
  const auto rank = static_cast<size_t>(from);
  if (has_joined[rank]) {
    ready.emplace_back(
        refusal(from, request,
                {Code::kInvalidArgument,
                 "Rank " + std::to_string(from) + " has joined already; wait for the first join."}));
    return;
  }
  has_joined[rank] = true;
  join_tag = joined_count == 0 ? request.tag : std::max(join_tag, request.tag);
  if (std::find(join_names.begin(), join_names.end(), request.name) == join_names.end())
    join_names.push_back(request.name);
  ++joined_count;
  // Ranks that join in one round have no order among them: the highest counts as last, whatever arrived
  // first.
  last_joined = last_joined_round == round ? std::max(last_joined, from) : from;
  last_joined_round = round;
  for (auto& [id, set] : pending) {
    set.join(from);
    collect(set);
    collect_conflicts(set);
  }
  match_set_changes();
  if (joined_count == options.world_size) finish_joining();
}

void Coordinator::State::finish_joining() {
  Response response;
  response.kind = Response::Kind::kJoined;
  response.what = Collective::kJoin;
  response.last_joined = last_joined;
  response.tag = join_tag;
  for (std::string& name : join_names) {
    response.entries.push_back({.name = std::move(name), .shape = {}, .rows = {}});
  }
  join_names.clear();
  ready.emplace_back(std::move(response));
  std::fill(has_joined.begin(), has_joined.end(), false);
  joined_count = 0;
  last_joined = -1;
  last_joined_round = -1;
}

void Coordinator::State::submit_set_change(Rank from, Request&& request) {
  if (const Status status = sets.push(from, request, now); !status.is_ok()) {
    ready.emplace_back(refusal(from, request, status));
    return;
  }
  match_set_changes();
}

void Coordinator::State::match_set_changes() {
  while (std::optional<std::vector<Submission>> match = sets.take_match(has_joined)) {
    std::vector<Entry> entries;
    for (const Submission& one : *match) {
      const bool is_known = std::any_of(entries.begin(), entries.end(),
                                        [&](const Entry& entry) { return entry.name == one.request.name; });
      if (!is_known) entries.push_back({.name = one.request.name, .shape = {}, .rows = {}});
    }
    // A set change is answered to all ranks at once, so every open request of these names is meant.
    for (Entry& entry : entries)
      for (const Submission& one : *match)
        if (one.request.name == entry.name) entry.failed_ranks.push_back(one.rank);
    Result<Response> verdict = sets.judge(*match);
    if (!verdict.is_ok()) {
      Request like;
      ready.emplace_back(make_error(like, std::move(entries), verdict.status()));
      continue;
    }
    Response response = std::move(verdict).value();
    for (Entry& entry : entries) entry.failed_ranks.clear();
    response.entries = std::move(entries);
    if (response.kind == Response::Kind::kSetRemoved) remove_set(response.set_id);
    sets.apply(response);
    if (response.kind == Response::Kind::kSetAdded)
      pending.try_emplace(response.set_id, response.set_id, response.set_ranks, has_joined);
    ready.emplace_back(std::move(response));
  }
}

void Coordinator::State::remove_set(int32_t id) {
  const auto at = pending.find(id);
  RUEDA_CHECK(at != pending.end(), "every registered process set has a table of pending names");
  collect(at->second);
  collect_conflicts(at->second);
  Finished rest;
  rest.tensors = at->second.take_all();
  rest.verdict = {Code::kMismatch,
                  "Process set " + std::to_string(id) +
                      " was removed while operations of it were outstanding; finish them first."};
  if (!rest.tensors.empty()) finish(at->second, std::move(rest));
  pending.erase(at);
}

void Coordinator::State::collect(PendingSet& set) {
  for (Finished& finished : set.take_finished()) finish(set, std::move(finished));
}

void Coordinator::State::collect_conflicts(PendingSet& set) {
  for (Finished& finished : set.take_conflicts()) finish(set, std::move(finished));
}

void Coordinator::State::finish(const PendingSet& set, Finished finished) {
  for (const auto& tensor : finished.tensors) trace_event(TraceKind::kEnd, set, *tensor, 0);
  Unit unit;
  unit.is_group = finished.is_group;
  const Status verdict = judge(set, finished, unit.candidates);
  if (verdict.is_ok()) {
    ready.emplace_back(std::move(unit));
    return;
  }
  std::vector<Entry> entries;
  for (const auto& tensor : finished.tensors) entries.push_back(failed_entry(*tensor));
  Request like = finished.tensors[0]->submissions[0].request;
  ready.emplace_back(make_error(like, std::move(entries), verdict));
}

// A group fails as a whole: the first member that errs speaks for all.
Status Coordinator::State::judge(const PendingSet& set, const Finished& finished,
                                 std::vector<Candidate>& out) const {
  if (!finished.verdict.is_ok()) return finished.verdict;
  for (const auto& tensor : finished.tensors) {
    std::vector<Rank> joined;
    if (tensor->submissions.size() < set.members().size())
      for (size_t i = 0; i < set.members().size(); ++i)
        if (!tensor->is_submitted[i]) joined.push_back(set.members()[i]);
    const CompleteTensor complete{tensor->submissions, set.members(), joined};
    if (!tensor->fault.is_ok()) return tensor->fault;
    if (Status status = find_mismatch(complete); !status.is_ok()) return status;
    out.push_back(make_candidate(complete));
  }
  return Status::ok();
}

Nanos Coordinator::State::oldest() const {
  Nanos since = std::numeric_limits<Nanos>::max();
  for (const auto& [id, set] : pending)
    if (!set.waiting().empty()) since = std::min(since, set.waiting().front()->since);
  if (const auto change = sets.waiting()) since = std::min(since, change->since);
  return since;
}

std::vector<StalledTensor> Coordinator::State::waiting_longer_than(Nanos age, Nanos when) const {
  std::vector<StalledTensor> stalled;
  for (const auto& [id, set] : pending) {
    for (const PendingTensor* tensor : set.waiting()) {
      if (when - tensor->since < age) break;  // the rest is younger
      std::vector<Rank> missing = set.missing_ranks(*tensor);
      if (missing.empty()) continue;
      stalled.push_back({tensor->name, operation_name(tensor->submissions[0].request), id,
                         when - tensor->since, std::move(missing)});
    }
  }
  if (auto change = sets.waiting(); change && when - change->since >= age)
    stalled.push_back(
        {change->name, "process set change", 0, when - change->since, std::move(change->missing)});
  return stalled;
}

Coordinator::Coordinator(CoordinatorOptions options) {
  RUEDA_CHECK(options.world_size >= 1, "a world has at least one rank");
  state_ = std::make_unique<State>(std::move(options));
}

Coordinator::~Coordinator() = default;

void Coordinator::submit(Rank from, std::vector<Request> requests, Nanos now, TraceSink* trace) {
  if (from < 0 || from >= state_->options.world_size) {
    RUEDA_LOG(kError, "Requests came from rank " + std::to_string(from) + ", which does not exist; ignored.");
    return;
  }
  state_->now = now;
  state_->trace = trace != nullptr && trace->is_on() ? trace : nullptr;
  std::vector<int32_t> touched;  // with repeats where a rank alternates between sets
  for (Request& request : requests) {
    const int32_t id = request.process_set;
    if (touched.empty() || touched.back() != id) touched.push_back(id);
    state_->submit_one(from, std::move(request));
    // One by one, so that what becomes ready is ordered across sets as it came.
    if (const auto at = state_->pending.find(id); at != state_->pending.end()) state_->collect(at->second);
  }
  for (const int32_t id : touched)
    if (const auto at = state_->pending.find(id); at != state_->pending.end())
      state_->collect_conflicts(at->second);
}

std::vector<Response> Coordinator::take_ready(Nanos now, TraceSink* trace) {
  state_->now = now;
  state_->trace = trace != nullptr && trace->is_on() ? trace : nullptr;
  ++state_->round;
  const FusionOptions options{state_->options.fusion_bytes, state_->options.alone_bytes,
                              state_->options.group_fusion_disabled};
  const int64_t bucket_bytes = std::min(state_->options.fusion_bytes, state_->options.priority_bytes);
  std::vector<Response> out;
  std::vector<Unit> units;
  const auto flush = [&] {
    for (Response& response : fuse(std::exchange(units, {}), options)) out.push_back(std::move(response));
  };
  // Nothing is fused across an error, a join or a change of process sets: they keep their place in the order,
  // also in that of tensors with a priority.
  for (std::variant<Unit, Response>& one : std::exchange(state_->ready, {})) {
    Unit* unit = std::get_if<Unit>(&one);
    if (unit == nullptr) {
      flush();
      while (!state_->turns.is_empty()) out.push_back(state_->turns.take(bucket_bytes));
      out.push_back(std::move(std::get<Response>(one)));
    } else if (unit->candidates[0].priority != 0) {
      for (Candidate& candidate : unit->candidates) state_->turns.add(std::move(candidate));
    } else {
      units.push_back(std::move(*unit));
    }
  }
  const bool is_urgent = state_->turns.highest() > 0;
  if (is_urgent) out.push_back(state_->turns.take(bucket_bytes));
  flush();
  if (out.empty() && !state_->turns.is_empty()) out.push_back(state_->turns.take(bucket_bytes));
  return out;
}

std::vector<StallReport> Coordinator::check_stalls(Nanos now) {
  if (state_->options.stall_check_disabled || now < next_check(now)) return {};
  state_->last_report = now;
  const Nanos warning = state_->options.stall_warning;
  if (state_->waiting_longer_than(warning, now).empty()) return {};
  // What the other ranks wait for explains it, and is often a little younger.
  const std::vector<StalledTensor> stalled = state_->waiting_longer_than(warning - warning / 10, now);
  StallReport report = stall_report(stalled, warning, state_->options.stall_shutdown);
  report.is_news = state_->reported.add(stalled, now);
  return {std::move(report)};
}

Nanos Coordinator::next_check(Nanos now) const {
  const CoordinatorOptions& options = state_->options;
  const Nanos oldest = state_->oldest();
  if (options.stall_check_disabled || oldest == std::numeric_limits<Nanos>::max())
    return now + std::max(options.stall_warning, kMillisecond);
  const Nanos next_report = state_->last_report + options.stall_warning;
  Nanos next = std::max(oldest + options.stall_warning, next_report);
  // The end of the job does not wait for the next report's turn.
  if (options.stall_shutdown > 0 && state_->may_shutdown() &&
      state_->last_report < oldest + options.stall_shutdown)
    next = std::min(next, oldest + options.stall_shutdown);
  return next;
}

std::string Coordinator::pending_summary() const {
  const std::vector<StalledTensor> waiting =
      state_->waiting_longer_than(std::numeric_limits<Nanos>::min() / 2, 0);
  std::string out;
  for (size_t i = 0; i < waiting.size() && i < kMaxListed; ++i)
    out += (i == 0 ? "" : "; ") + waiting[i].name + " waits for " + rank_list(waiting[i].missing);
  if (waiting.size() > kMaxListed) out += "; and " + std::to_string(waiting.size() - kMaxListed) + " more";
  return out;
}

bool Coordinator::may_begin_plan(const std::unordered_set<std::string>& names) const {
  if (!state_->ready.empty() || !state_->turns.is_empty() || state_->joined_count > 0 ||
      state_->sets.waiting())
    return false;
  return std::ranges::all_of(state_->pending, [&](const auto& one) {
    return std::ranges::all_of(one.second.waiting(), [&](const PendingTensor* tensor) {
      return one.first == 0 && names.contains(tensor->name);
    });
  });
}

void Coordinator::forget_waiting(Nanos now, TraceSink* trace) {
  state_->now = now;
  state_->trace = trace != nullptr && trace->is_on() ? trace : nullptr;
  PendingSet& world = state_->pending.at(0);
  for (const auto& tensor : world.take_all()) state_->trace_event(TraceKind::kEnd, world, *tensor, 0);
}

const std::map<int32_t, std::vector<Rank>>& Coordinator::process_sets() const { return state_->sets.sets(); }

}  // namespace rueda::control
