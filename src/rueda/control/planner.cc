#include "rueda/control/planner.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace rueda::control {
namespace {

// This rank has submitted a part of a bucket. If the rest depends on it, nothing but time tells: a program
// that asks to be called back does not say for what it waits.
constexpr Nanos kPatience = kSecond;
// The same while a bucket is under way: another rank may wait for what this rank has submitted, before it
// starts that bucket.
constexpr Nanos kPatienceUnderWay = 5 * kSecond;
constexpr Nanos kLookEvery = 5 * kMillisecond;  // for polls that have become waits

void append(PlannerActions& actions, PlannerActions more) {
  for (PlannerAction& action : more) actions.push_back(std::move(action));
}

// The requests of one operation; none if it changes the process sets.
std::vector<const TensorRequest*> tensors_of(const std::vector<Request>& requests) {
  std::vector<const TensorRequest*> tensors;
  for (const Request& request : requests)
    if (const auto* tensor = std::get_if<TensorRequest>(&request)) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

PlanReport Planner::news() const {
  return {.plan_number = runner_.plan_number(), .started = runner_.started(), .under_way = {}};
}

bool Planner::take(OperationId operation, std::span<const TensorRequest* const> requests, Nanos now,
                   std::span<PlanPlace* const> places) {
  positions_.clear();
  if (!runner_.is_open() || requests.empty()) return false;
  for (size_t i = 0; i < requests.size(); ++i) {
    const PlanPlace last = places.empty() ? PlanPlace{} : *places[i];
    const std::optional<size_t> position = runner_.position_of(*requests[i], last);
    if (!position) return false;
    positions_.push_back(*position);
  }
  for (size_t i = 0; i < requests.size(); ++i) runner_.accept(positions_[i], *requests[i], operation);
  for (size_t i = 0; i < places.size(); ++i)
    if (requests[i]->numbered_at == 0)
      *places[i] = {.plan_number = runner_.plan_number(), .position = positions_[i]};
  taken_at_ = now;
  maker_.taken(positions_, now);
  return true;
}

// What the plan gives back is negotiated when it is over; what was submitted behind that comes then too. So
// the coordinator learns the order of submission, which counts where tensors share memory, on any rank.
PlannerActions Planner::hold_back(OperationId operation, std::vector<Request> requests,
                                  const std::string& why) {
  held_back_[operation] = std::move(requests);
  return depart(why);
}

void Planner::remember(OperationId operation, std::vector<Request> requests) {
  for (const Request& request : requests) operation_of_[name_of(request)] = operation;
  unanswered_[operation] = std::move(requests);
}

bool Planner::awaits_world() const {
  return !held_back_.empty() || std::ranges::any_of(unanswered_, [](const auto& one) {
    return std::ranges::any_of(one.second,
                               [](const Request& request) { return name_of(request).first == 0; });
  });
}

void Planner::forget(OperationId operation) {
  const auto found = unanswered_.find(operation);
  if (found == unanswered_.end()) return;
  for (const Request& request : found->second) {
    const auto name = operation_of_.find(name_of(request));
    if (name != operation_of_.end() && name->second == operation) operation_of_.erase(name);
  }
  unanswered_.erase(found);
}

Planner::Decision Planner::submitted(OperationId operation, std::span<const TensorRequest* const> requests,
                                     Nanos now, std::span<PlanPlace* const> places) {
  if (take(operation, requests, now, places))
    return {.is_taken = true, .actions = {}, .positions = positions_};
  std::vector<Request> copies;
  for (const TensorRequest* request : requests) copies.emplace_back(*request);
  return submitted(operation, std::move(copies));
}

Planner::Decision Planner::submitted(OperationId operation, std::vector<Request> requests) {
  if (runner_.is_active()) {
    const std::string why = "it submits " + name_of(requests.front()).second;
    return {.is_taken = true, .actions = hold_back(operation, std::move(requests), why)};
  }
  remember(operation, std::move(requests));
  return {};
}

PlannerActions Planner::depart(const std::string& why) {
  maker_.keep_ended();
  if (!runner_.is_open()) return {};
  runner_.freeze();
  return {TellDeparture{.news = news(), .why = why}};
}

Result<std::optional<PlannerActions>> Planner::response(Response& response, Nanos now) {
  if (auto* planned = std::get_if<PlanBucket>(&response)) {
    arriving_.push_back(std::move(planned->bucket));
    return std::optional(PlannerActions());
  }
  if (const auto* begins = std::get_if<PlanBegin>(&response)) return begin(*begins, now);
  if (const auto* ends = std::get_if<PlanEnd>(&response)) return end(*ends);
  answered(response);
  return std::optional<PlannerActions>();
}

void Planner::answered(const Response& response) {
  for_each_answer(response, options_.me, [&](int32_t process_set, const std::string& name) {
    const auto found = operation_of_.find({process_set, name});
    if (found != operation_of_.end()) forget(OperationId{found->second});
  });
}

// The coordinator has forgotten the requests that it had not answered. Every rank puts its own ones into the
// plan or submits them again.
Result<std::optional<PlannerActions>> Planner::begin(const PlanBegin& begins, Nanos now) {
  const int64_t plan_number = begins.plan_number;
  if (runner_.is_active() || arriving_.empty()) {
    return Status(Code::kInternal,
                  "Learned plan " + std::to_string(plan_number) + " begins " +
                      (arriving_.empty() ? "without buckets." : "before another has ended."));
  }
  SetMembers sets;
  for (const PlanSet& set : begins.sets) sets[set.id] = set.ranks;
  Status readable = runner_.begin(plan_number, options_.me, std::exchange(arriving_, {}), sets);
  if (!readable.is_ok()) return readable;
  ++plans_begun_;
  PlannerActions actions;
  actions.emplace_back(PlanBegun{});
  actions.emplace_back(SetGeneration{.generation = ++generation_});
  moved_at_ = now;
  operation_of_.clear();
  for (auto& [operation, requests] : std::exchange(unanswered_, {})) {
    if (take(operation, tensors_of(requests), now)) continue;
    const std::string why = "it has submitted " + name_of(requests.front()).second;
    append(actions, hold_back(operation, std::move(requests), why));
  }
  return std::optional(std::move(actions));
}

// Messages that others have sent for buckets that do not run must be received before all later messages.
void Planner::undo(const PlanEnd& end, PlannerActions& actions) const {
  std::map<int64_t, std::vector<int32_t>> arrivals;  // of each bucket
  const auto of_bucket = [&](int64_t number) -> std::vector<int32_t>& {
    std::vector<int32_t>& from = arrivals[number];
    from.resize(static_cast<size_t>(options_.ranks), 0);
    return from;
  };
  const int64_t size = runner_.size();
  const auto ends_at = [&](int64_t index) { return end.runs[static_cast<size_t>(index)]; };
  for (int64_t index = 0; index < size; ++index) {
    const auto bucket = static_cast<size_t>(index);
    if (runner_.has_part(bucket) && runner_.starts_of(bucket) > ends_at(index))
      of_bucket(ends_at(index) * size + index);
  }
  for (const Flow& flow : end.flows) {
    if (flow.to != options_.me || flow.from >= options_.ranks) continue;
    const int64_t index = flow.bucket % size;
    if (!runner_.has_part(static_cast<size_t>(index)) || flow.bucket / size != ends_at(index)) continue;
    of_bucket(flow.bucket)[static_cast<size_t>(flow.from)] = flow.messages;
  }
  for (auto& [number, messages] : arrivals)
    if (number < runner_.started())
      actions.emplace_back(Cancel{.number = number, .arrivals = std::move(messages)});
  actions.emplace_back(Resume{});
  for (auto& [number, messages] : arrivals)
    if (number >= runner_.started())
      actions.emplace_back(
          Discard{.number = number, .bucket = runner_.bucket(number), .arrivals = std::move(messages)});
}

Result<std::optional<PlannerActions>> Planner::end(const PlanEnd& end) {
  Result<std::vector<LeftOver>> left_over = runner_.finish(end.runs);
  if (!left_over.is_ok()) return left_over.status();
  PlannerActions actions;
  actions.emplace_back(PlanOver{.is_change = end.is_change});
  undo(end, actions);
  actions.emplace_back(SetGeneration{.generation = ++generation_});
  std::map<OperationId, std::vector<TensorRequest>> open;  // what was not reduced
  for (LeftOver& left : left_over.value()) open[left.operation].push_back(std::move(left.request));
  std::map<OperationId, std::vector<Request>> later = std::exchange(held_back_, {});
  for (auto& [operation, requests] : open) {
    std::ranges::sort(requests, {}, &TensorRequest::group_index);
    // If a part of a group was reduced, it was reduced on every rank; the rest is no longer a group.
    if (std::cmp_less(requests.size(), requests.front().group_size)) {
      for (TensorRequest& request : requests) {
        request.group_index = 0;
        request.group_size = 1;
        request.group_name.clear();
      }
    }
    later[operation] = {std::make_move_iterator(requests.begin()), std::make_move_iterator(requests.end())};
  }
  std::vector<Request> again;
  for (auto& [operation, requests] : later) {
    again.insert(again.end(), requests.begin(), requests.end());
    remember(operation, std::move(requests));
  }
  if (!again.empty()) actions.emplace_back(Negotiate{.requests = std::move(again)});
  return std::optional(std::move(actions));
}

std::optional<StartBucket> Planner::room(Nanos now, int64_t first_open) {
  SharedBucket next = runner_.next(first_open);
  if (next == nullptr) return std::nullopt;
  if (runner_.started() % runner_.size() == 0) maker_.pass_begins(now);
  StartBucket start{.bucket = std::move(next),
                    .number = runner_.next_number(),
                    .first_position = runner_.first_position(),
                    .row_counts = runner_.next_row_counts()};
  runner_.start_next();
  moved_at_ = now;
  return start;
}

PlannerActions Planner::tick(Nanos now, bool is_idle) {
  if (!runner_.is_open()) return {};
  if (options_.may_plan && is_idle && runner_.started() % runner_.size() == 0) {
    PlannerActions changes = maker_.between_passes(news(), now);
    if (!changes.empty()) return changes;
  }
  if (!is_idle && now - moved_at_ > options_.patience)
    return depart("the other ranks have not come for " + std::to_string(options_.patience / kSecond) + " s");
  if (is_idle && runner_.waiting() > 0 && now - taken_at_ > kPatience)
    return depart("it has submitted nothing more for a second");
  if (!is_idle && runner_.waiting() > 0 && now - std::max(taken_at_, moved_at_) > kPatienceUnderWay) {
    bool is_stuck = false;
    runner_.for_each_stuck([&](size_t) { is_stuck = true; });
    if (is_stuck) return depart("it has submitted a part of a bucket and nothing has moved for 5 s");
  }
  return {};
}

Planner::Progress Planner::place(Nanos now, bool is_idle, int64_t open) const {
  if (!runner_.is_open()) return {};
  return {.plan_number = runner_.plan_number(),
          .started = runner_.started(),
          .open = open,
          .stuck_for = is_idle ? 0 : std::max<Nanos>(now - moved_at_, 1),
          .lacks = runner_.lacks()};
}

bool Planner::asks_for_wanted(Nanos now, uint64_t waits) const {
  return runner_.is_open() && runner_.waiting() > 0 && (waits != seen_waits_ || now >= next_look_);
}

PlannerActions Planner::wanted(Nanos now, uint64_t waits, const std::function<bool(size_t)>& is_wanted) {
  seen_waits_ = waits;
  next_look_ = now + kLookEvery;
  std::optional<size_t> stuck;
  runner_.for_each_stuck([&](size_t position) {
    if (!stuck && is_wanted(position)) stuck = position;
  });
  if (!stuck) return {};
  const std::string& name = runner_.waiting_at(*stuck)->request.name;
  return depart("it waits for " + name + " before it submits the rest of its bucket");
}

Nanos Planner::next_event(bool is_idle) const {
  if (!runner_.is_open()) return std::numeric_limits<Nanos>::max();
  if (runner_.waiting() > 0) return next_look_;
  return is_idle ? std::numeric_limits<Nanos>::max() : moved_at_ + options_.patience;
}

PlannerActions Planner::on_freeze(const PlanReport& frozen) {
  if (!runner_.is_active() || frozen.plan_number != runner_.plan_number()) return {};
  runner_.freeze();
  return {TellPosition{.news = news()}};
}

}  // namespace rueda::control
