#include "simulate/engines.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "rueda/base/check.h"
#include "simulate/specs.h"
#include "workload/models.h"

namespace rueda::simulate {
namespace {

using control::OrderAction;

// A tensor is named by its index.
std::string name_at(size_t index) { return std::to_string(index); }
size_t index_in(std::string_view name) {
  size_t index = 0;
  for (const char digit : name) index = 10 * index + static_cast<size_t>(digit - '0');
  return index;
}

std::vector<int32_t> even_splits(int64_t count, Rank ranks) {
  std::vector<int32_t> splits;
  for (Rank rank = 0; rank < ranks; ++rank)
    splits.push_back(static_cast<int32_t>(workload::part_of(count, rank, ranks)));
  return splits;
}

// What each rank asks of the others, the same on all.
std::vector<control::TensorRequest> requests_of(const std::vector<Exchanged>& tensors, Rank ranks) {
  std::vector<control::TensorRequest> requests;
  for (size_t i = 0; i < tensors.size(); ++i) {
    control::TensorRequest& request = requests.emplace_back();
    request.what = tensors[i].what;
    request.name = name_at(i);
    request.shape = {tensors[i].count};
    request.dtype = DType::kFloat32;
    if (request.what == Collective::kBroadcast) request.root = 0;
    if (request.what == Collective::kAlltoall) request.splits = even_splits(tensors[i].count, ranks);
    request.priority = tensors[i].priority;
    if (tensors[i].members == 1) continue;
    request.group_index = static_cast<int32_t>(i - tensors[i].group);
    request.group_size = static_cast<int32_t>(tensors[i].members);
    request.group_name = name_at(tensors[i].group);
  }
  return requests;
}

CallPlace place_of(const control::Ordered& one) { return {one.generation, one.place}; }

}  // namespace

struct Engines::Node {
  struct Kept {
    control::SharedBucket bucket;
    uint64_t place = 0;
    std::vector<size_t> tensors;
  };
  std::unique_ptr<control::Planner> planner;
  control::Order order{1};
  std::vector<Kept> kept;     // [key] of what is in the order
  std::vector<bool> is_busy;  // [channel] a call of this rank runs there
  control::OperationId last_operation = 0;
  uint64_t waits = 0;
  bool waits_for_all = false;
  std::optional<size_t> awaited_group = {};

  explicit Node(size_t channels) : is_busy(channels, false) {}
  [[nodiscard]] bool has_room(uint64_t place) const { return !is_busy[place % is_busy.size()]; }
  void set_busy(uint64_t place, bool is_now) { is_busy[place % is_busy.size()] = is_now; }
  void keep(const control::Ordered& one, control::SharedBucket bucket) {
    if (one.key >= kept.size()) kept.resize(one.key + 1);
    std::vector<size_t> indices;
    for (const control::Entry& entry : bucket->entries) indices.push_back(index_in(entry.name));
    kept[one.key] = {.bucket = std::move(bucket), .place = one.place, .tensors = std::move(indices)};
  }
  [[nodiscard]] const control::Ordered* find(const CallPlace& place) const {
    const auto at = std::ranges::find(order.running(), place, place_of);
    return at == order.running().end() ? nullptr : &*at;
  }
};

Engines::Engines(EngineOptions options, const std::vector<Exchanged>& tensors, Agenda& agenda, Calls& calls,
                 std::function<void(Rank, size_t)> done)
    : options_(options),
      tensors_(tensors),
      requests_(requests_of(tensors, options.ranks)),
      agenda_(agenda),
      calls_(calls),
      done_(std::move(done)) {
  const auto traits = [alone = options_.alone_bytes](int32_t, const control::Terms&) {
    // Calls that are packed are those that schedules carry out.
    return control::BackendTraits{.alone_bytes = alone, .obeys_tuning = alone > 0};
  };
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Node& node = nodes_.emplace_back(options_.channels);
    node.planner = std::make_unique<control::Planner>(
        control::Planner::Options{.may_plan = rank == 0 && options_.plans && options_.ranks > 1,
                                  .bucket_bytes = std::min(options_.bucket_bytes, options_.fusion_bytes),
                                  .me = rank,
                                  .ranks = options_.ranks,
                                  .traits_of = traits,
                                  .tuner = options_.tuner});
  }
  control::CoordinatorOptions coordinator;
  coordinator.world_size = options_.ranks;
  coordinator.fusion_bytes = options_.fusion_bytes;
  coordinator.priority_bytes = options_.priority_bytes;
  coordinator.stall_check_disabled = true;
  coordinator.traits_of = traits;
  rounds_ = std::make_unique<control::Rounds>(
      std::move(coordinator),
      control::Rounds::Options{.cycle_time = options_.cycle_time, .max_backlog = options_.channels + 1},
      *nodes_[0].planner);
}

Engines::~Engines() = default;

int64_t Engines::plans_begun() const { return nodes_[0].planner->plans_begun(); }

std::vector<control::Tuner::News> Engines::take_tuner_news() {
  return nodes_[0].planner->maker().take_news();
}

const control::BucketWay& Engines::best_way() const { return nodes_[0].planner->maker().best_way(); }

void Engines::submit(Rank rank, size_t group) {
  Node& node = nodes_[rank];
  node.waits_for_all = false;
  node.awaited_group.reset();
  std::vector<const control::TensorRequest*> requests;
  for (size_t i = 0; i < tensors_[group].members; ++i) requests.push_back(&requests_[group + i]);
  control::Planner::Decision decision =
      node.planner->submitted(++node.last_operation, requests, agenda_.now());
  const bool is_taken = decision.is_taken;
  carry_out(rank, std::move(decision.actions));
  if (!is_taken) {
    std::vector<control::Request> negotiated;
    for (const control::TensorRequest* request : requests) negotiated.emplace_back(*request);
    negotiate(rank, std::move(negotiated));
  }
  cycle(rank);
}

void Engines::wait_for_all(Rank rank) {
  ++nodes_[rank].waits;
  nodes_[rank].waits_for_all = true;
  cycle(rank);
}

void Engines::wait_for(Rank rank, size_t group) {
  ++nodes_[rank].waits;
  nodes_[rank].awaited_group = group;
  cycle(rank);
}

void Engines::run_next_calls() {
  agenda_.move_to(calls_.next());
  ended_.clear();
  calls_.advance(ended_);
  for (const CallEnd& end : ended_) agenda_.at(end.at, [this, end] { complete(end); });
}

void Engines::tick() {
  for (Rank rank = 0; rank < options_.ranks; ++rank) cycle(rank);
}

// Rank 0 takes one control message after the other.
void Engines::send_to_coordinator(Rank from, std::function<void()> what) {
  if (from == 0) return what();
  ++messages_;
  agenda_.at(agenda_.now() + options_.flight, [this, what = std::move(what)] {
    coordinator_free_ = std::max(coordinator_free_, agenda_.now()) + options_.control;
    agenda_.at(coordinator_free_, what);
  });
}

void Engines::broadcast(const std::function<void(Rank)>& what) {
  for (Rank rank = 1; rank < options_.ranks; ++rank) {
    ++messages_;
    coordinator_free_ = std::max(coordinator_free_, agenda_.now()) + options_.control;
    agenda_.at(coordinator_free_ + options_.flight, [what, rank] { what(rank); });
  }
}

void Engines::complete(const CallEnd& end) {
  Node& node = nodes_[end.rank];
  const control::Ordered* const call = node.find(end.place);
  RUEDA_CHECK(call != nullptr, "a call that ends was running");
  const control::OrderKey key = call->key;
  node.set_busy(end.place.second, false);
  const bool has_result = node.order.ended(key);
  RUEDA_CHECK(has_result, "a call that is cancelled does not end");
  node.planner->moved(agenda_.now());
  for (const size_t tensor : node.kept[key].tensors) done_(end.rank, tensor);
  cycle(end.rank);
}

void Engines::cycle(Rank rank) {
  Node& node = nodes_[rank];
  start_next(rank);
  const auto may_start = [&node] {
    const OrderAction opening = node.order.opening();
    if (opening.what != OrderAction::What::kLook) return opening.what == OrderAction::What::kStart;
    return node.has_room(static_cast<uint64_t>(node.planner->started()));
  };
  while (may_start()) {
    std::optional<control::StartBucket> started =
        node.planner->room(agenda_.now(), node.order.first_open_bucket(node.planner->started()));
    if (!started) break;
    control::PlannerActions actions;
    actions.emplace_back(std::move(*started));
    carry_out(rank, std::move(actions));
  }
  carry_out(rank, node.planner->tick(agenda_.now(), node.order.is_idle()));
  if (node.planner->asks_for_wanted(agenda_.now(), node.waits)) {
    std::set<size_t> wanted;  // positions of the plan
    node.planner->for_each_waiting([&](size_t position, const control::LeftOver& waiting) {
      if (node.waits_for_all || node.awaited_group == tensors_[index_in(waiting.request.name)].group)
        wanted.insert(position);
    });
    const auto is_wanted = [&](size_t position) { return wanted.contains(position); };
    carry_out(rank, node.planner->wanted(agenda_.now(), node.waits, is_wanted));
  }
  if (rank == 0) coordinate();
}

void Engines::coordinate() {
  std::vector<control::Response> responses = rounds_->take_round(agenda_.now(), nodes_[0].order.backlog());
  if (responses.empty()) {
    if (rounds_->next_round() > agenda_.now()) agenda_.at(rounds_->next_round(), [this] { coordinate(); });
    return;
  }
  respond(std::move(responses));
  carry_out(0, rounds_->responded());
}

void Engines::respond(std::vector<control::Response> responses) {
  const auto shared = std::make_shared<const std::vector<control::Response>>(std::move(responses));
  broadcast([this, shared](Rank rank) { accept(rank, *shared); });
  accept(0, *shared);
}

void Engines::accept(Rank rank, const std::vector<control::Response>& responses) {
  Node& node = nodes_[rank];
  for (control::Response response : responses) {
    if (const auto* failure = std::get_if<control::Failure>(&response)) {
      if (refusal_.is_ok()) refusal_ = {failure->code, failure->error};
      continue;
    }
    auto actions = node.planner->response(response, agenda_.now());
    RUEDA_CHECK(actions.is_ok(), "rank 0 does not contradict itself");
    if (actions.value())
      carry_out(rank, std::move(*actions.value()));
    else
      node.keep(node.order.enqueue(response),
                std::make_shared<const control::Bucket>(std::get<control::Bucket>(std::move(response))));
  }
  if (rank != 0) cycle(rank);
  start_next(rank);
}

void Engines::negotiate(Rank rank, std::vector<control::Request> requests) {
  send_to_coordinator(
      rank, [this, rank, begun = nodes_[rank].planner->plans_begun(), requests = std::move(requests)] {
        rounds_->submitted(rank, begun, requests, agenda_.now(), nullptr);
        if (rank != 0) cycle(0);
      });
}

void Engines::start_next(Rank rank) {
  Node& node = nodes_[rank];
  OrderAction action = node.order.next();
  while (action.what != OrderAction::What::kNothing) {
    if (action.what == OrderAction::What::kLook) {
      action = node.order.looked({.backend = 0, .has_room = node.has_room(node.kept[action.key].place)});
      continue;
    }
    RUEDA_CHECK(action.what == OrderAction::What::kStart, "a simulated job has calls only");
    const control::Ordered& call = node.order.running().back();
    node.set_busy(call.place, true);
    const control::Bucket& bucket = *node.kept[call.key].bucket;
    if (rank == 0) {
      ++calls_begun_;
      started_.push_back({.tensors = bucket.entries.size(),
                          .bytes = static_cast<int64_t>(bytes_of(bucket)),
                          .which = node.kept[call.key].tensors});
    }
    calls_.start(rank, place_of(call), bucket, call.origin == control::BatchOrigin::kPlanned, agenda_.now());
    action = node.order.next();
  }
}

void Engines::carry_out(Rank rank, control::PlannerActions actions) {
  for (control::PlannerAction& action : actions) std::visit([&](auto& one) { carry_out(rank, one); }, action);
}

void Engines::carry_out(Rank rank, control::TellDeparture& told) {
  send_to_coordinator(rank,
                      [this, news = told.news] { carry_out(0, nodes_[0].planner->maker().on_depart(news)); });
}

void Engines::carry_out(Rank rank, control::TellPosition& told) {
  nodes_[rank].order.pause();
  send_to_coordinator(rank, [this, rank, news = told.news] {
    auto actions = nodes_[0].planner->maker().on_position(rank, news);
    RUEDA_CHECK(actions.is_ok(), "a rank knows how far it is");
    carry_out(0, std::move(actions).value());
    cycle(0);
  });
}

void Engines::carry_out(Rank rank, control::StartBucket& started) {
  Node& node = nodes_[rank];
  RUEDA_CHECK(started.row_counts == nullptr, "simulated tensors have the same rows in every step");
  node.keep(node.order.enqueue_planned(*started.bucket, started.number), started.bucket);
  start_next(rank);
}

void Engines::carry_out(Rank, control::FreezeAll& frozen) {
  broadcast(
      [this, news = frozen.news](Rank rank) { carry_out(rank, nodes_[rank].planner->on_freeze(news)); });
  carry_out(0, nodes_[0].planner->on_freeze(frozen.news));
}

void Engines::carry_out(Rank rank, control::SetGeneration& set) {
  nodes_[rank].order.set_generation(set.generation);
}
void Engines::carry_out(Rank rank, control::Resume&) { nodes_[rank].order.resume(); }

// A bucket that not all ranks have started. Its tensors are negotiated.
void Engines::carry_out(Rank rank, control::Cancel& cancelled) {
  Node& node = nodes_[rank];
  const OrderAction action = node.order.cancel(cancelled.number);
  if (action.what == OrderAction::What::kForget) return;
  const auto running = std::ranges::find(node.order.running(), action.key, &control::Ordered::key);
  calls_.cancel(place_of(*running));
  node.set_busy(running->place, false);
  node.order.ended(action.key);
}

}  // namespace rueda::simulate
