#include "simulate/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>

#include "rueda/base/check.h"
#include "simulate/specs.h"

namespace rueda::simulate {
namespace {

using control::OrderAction;

constexpr Nanos kTick = 100 * kMillisecond;

Nanos nanos_of_us(double us) { return static_cast<Nanos>(us * 1e3); }
Nanos scaled(Nanos time, double factor) { return static_cast<Nanos>(static_cast<double>(time) * factor); }

// A gradient is named by its index.
std::string name_at(size_t index) { return std::to_string(index); }
size_t index_in(std::string_view name) {
  size_t index = 0;
  for (const char digit : name) index = 10 * index + static_cast<size_t>(digit - '0');
  return index;
}

CallPlace place_of(const control::Ordered& one) { return {one.generation, one.place}; }

}  // namespace

struct Job::Node {
  std::unique_ptr<control::Planner> planner;
  control::Order order{1};
  struct Kept {
    control::SharedBucket bucket;
    uint64_t place = 0;
    std::vector<size_t> gradients;
  };
  std::vector<Kept> kept;                        // [key] of what is in the order
  std::vector<control::TensorRequest> requests;  // [gradient]
  std::vector<bool> is_open;                     // [gradient] submitted, and its sum is not there
  std::vector<bool> has_sum;                     // [gradient] of the last step
  size_t open = 0;
  control::OperationId last_operation = 0;
  uint64_t waits = 0;
  std::vector<bool> is_busy;  // [channel] a call of this rank runs there
  // The training loop.
  int step = 0;
  size_t next = 0;          // the gradient that comes next, in the forward or the backward pass
  Nanos origin = 0;         // from when `ready` counts
  bool is_waiting = false;  // for its gradients, or for the one of the forward pass

  explicit Node(size_t channels) : is_busy(channels, false) {}
  [[nodiscard]] bool has_room(uint64_t place) const { return !is_busy[place % is_busy.size()]; }
  void keep(const control::Ordered& one, control::SharedBucket bucket) {
    if (one.key >= kept.size()) kept.resize(one.key + 1);
    std::vector<size_t> indices;
    for (const control::Entry& entry : bucket->entries) indices.push_back(index_in(entry.name));
    kept[one.key] = {.bucket = std::move(bucket), .place = one.place, .gradients = std::move(indices)};
  }
  [[nodiscard]] const control::Ordered* find(const CallPlace& place) const {
    const auto at = std::ranges::find(order.running(), place, place_of);
    return at == order.running().end() ? nullptr : &*at;
  }
};

Job::Job(Program program, JobOptions options, Calls& calls)
    : program_(std::move(program)), options_(std::move(options)), calls_(calls) {
  const auto traits = [alone = options_.alone_bytes](int32_t, const control::Terms&) {
    return control::BackendTraits{.alone_bytes = alone};
  };
  const auto gradients = static_cast<int32_t>(program_.gradients.size());
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Node& node = nodes_.emplace_back(options_.channels);
    node.planner = std::make_unique<control::Planner>(
        control::Planner::Options{.may_plan = rank == 0 && options_.plans && options_.ranks > 1,
                                  .bucket_bytes = std::min(options_.bucket_bytes, options_.fusion_bytes),
                                  .me = rank,
                                  .ranks = options_.ranks,
                                  .traits_of = traits});
    node.is_open.assign(program_.gradients.size(), false);
    node.has_sum.assign(program_.gradients.size(), true);
    for (int32_t i = 0; i < gradients; ++i) {
      control::TensorRequest request;
      request.what = Collective::kAllreduce;
      request.name = name_at(static_cast<size_t>(i));
      request.shape = {program_.gradients[i].count};
      request.dtype = DType::kFloat32;
      if (program_.cross_step) request.priority = i - gradients;
      node.requests.push_back(std::move(request));
    }
    result_.steps.emplace_back();
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

Job::~Job() = default;

Result<JobResult> Job::run() {
  for (Rank rank = 0; rank < options_.ranks; ++rank) begin_step(rank);
  const std::function<void()> tick = [this, &tick] {
    for (Rank rank = 0; rank < options_.ranks; ++rank) cycle(rank);
    at(now_ + kTick, tick);
  };
  at(kTick, tick);
  Nanos moved = 0;
  while (finished_ < options_.ranks) {
    const Nanos next_call = calls_.next();
    const bool is_call = next_call <= events_.top().when;
    now_ = std::max(now_, is_call ? next_call : events_.top().when);
    if (is_call) {
      ended_.clear();
      calls_.advance(ended_);
      for (const CallEnd& end : ended_) at(end.at, [this, end] { complete(end); });
      moved = now_;
    } else {
      const std::function<void()> what = events_.top().what;
      if (events_.size() > 1) moved = now_;  // not the tick alone
      events_.pop();
      what();
    }
    if (now_ - moved > 1000 * kSecond)
      return Status(Code::kInternal,
                    "the simulated job hangs; please report this, with the command and its files");
  }
  result_.use = calls_.use();
  result_.plans_begun = nodes_[0].planner->plans_begun();
  return std::move(result_);
}

void Job::at(Nanos when, std::function<void()> what) {
  events_.push({.when = std::max(when, now_), .order = next_order_++, .what = std::move(what)});
}

// Rank 0 takes one control message after the other.
void Job::send_to_coordinator(Rank from, std::function<void()> what) {
  if (from == 0) return what();
  ++messages_;
  at(now_ + options_.flight, [this, what = std::move(what)] {
    coordinator_free_ = std::max(coordinator_free_, now_) + nanos_of_us(options_.costs.control_us);
    at(coordinator_free_, what);
  });
}

void Job::broadcast(const std::function<void(Rank)>& what) {
  for (Rank rank = 1; rank < options_.ranks; ++rank) {
    ++messages_;
    coordinator_free_ = std::max(coordinator_free_, now_) + nanos_of_us(options_.costs.control_us);
    at(coordinator_free_ + options_.flight, [what, rank] { what(rank); });
  }
}

// ---- the training loop ----
void Job::begin_step(Rank rank) {
  Node& node = nodes_[rank];
  result_.steps[rank].push_back({.began = now_});
  if (!program_.cross_step) return begin_backward(rank, now_);
  node.next = program_.gradients.size();
  go_forward(rank);
}

// The forward pass needs the gradients in the reverse order.
void Job::go_forward(Rank rank) {
  Node& node = nodes_[rank];
  while (node.next > 0) {
    if (!node.has_sum[node.next - 1]) {
      node.is_waiting = true;
      ++node.waits;
      return cycle(rank);
    }
    const Nanos takes = program_.gradients[--node.next].forward;
    if (takes > 0)
      return at(now_ + scaled(takes, options_.slower[rank][node.step]), [this, rank] { go_forward(rank); });
  }
  Nanos forward = 0;
  for (const Gradient& gradient : program_.gradients) forward += gradient.forward;
  begin_backward(rank, now_ - scaled(forward, options_.slower[rank][node.step]));
}

void Job::begin_backward(Rank rank, Nanos origin) {
  Node& node = nodes_[rank];
  node.origin = origin;
  node.next = 0;
  submit_next(rank);
}

// The training thread computes until the gradient is ready, and takes some time for each of them.
void Job::submit_next(Rank rank) {
  Node& node = nodes_[rank];
  const bool is_last = node.next == program_.gradients.size();
  const Nanos ready = is_last ? program_.compute : program_.gradients[node.next].ready;
  const Nanos lag = nanos_of_us(options_.costs.submit_us) * static_cast<Nanos>(node.next);
  const Nanos when = node.origin + scaled(ready, options_.slower[rank][node.step]) + lag;
  at(when, [this, rank, is_last] {
    if (is_last) return finish_computing(rank);
    Node& mine = nodes_[rank];
    submit(rank, mine.next++);
    submit_next(rank);
  });
}

void Job::submit(Rank rank, size_t gradient) {
  Node& node = nodes_[rank];
  RUEDA_CHECK(!node.is_open[gradient], "a gradient is in flight once");
  node.is_open[gradient] = true;
  node.has_sum[gradient] = false;
  ++node.open;
  if (options_.ranks == 1) return complete_gradient(rank, gradient);
  const control::TensorRequest* const request = &node.requests[gradient];
  control::Planner::Decision decision =
      node.planner->submitted(++node.last_operation, std::span(&request, 1), now_);
  const bool is_taken = decision.is_taken;
  carry_out(rank, std::move(decision.actions));
  if (!is_taken) negotiate(rank, {*request});
  cycle(rank);
}

void Job::finish_computing(Rank rank) {
  Node& node = nodes_[rank];
  result_.steps[rank].back().computed = now_;
  if (program_.cross_step || node.open == 0) return end_step(rank);
  node.is_waiting = true;
  ++node.waits;
  cycle(rank);
}

void Job::complete(const CallEnd& end) {
  Node& node = nodes_[end.rank];
  const control::Ordered* const call = node.find(end.place);
  RUEDA_CHECK(call != nullptr, "a call that ends was running");
  const control::OrderKey key = call->key;
  node.is_busy[end.place.second % node.is_busy.size()] = false;
  const bool has_result = node.order.ended(key);
  RUEDA_CHECK(has_result, "a call that is cancelled does not end");
  node.planner->moved(now_);
  for (const size_t gradient : node.kept[key].gradients) complete_gradient(end.rank, gradient);
  cycle(end.rank);
}

void Job::complete_gradient(Rank rank, size_t gradient) {
  Node& node = nodes_[rank];
  node.is_open[gradient] = false;
  node.has_sum[gradient] = true;
  --node.open;
  if (!node.is_waiting) return;
  const Nanos awake = now_ + nanos_of_us(options_.costs.wake_us);
  if (program_.cross_step) {
    if (gradient + 1 != node.next) return;
    node.is_waiting = false;
    at(awake, [this, rank] { go_forward(rank); });
  } else if (node.open == 0) {
    node.is_waiting = false;
    at(awake, [this, rank] { end_step(rank); });
  }
}

void Job::end_step(Rank rank) {
  Node& node = nodes_[rank];
  result_.steps[rank].back().ended = now_;
  if (rank == 0) {
    result_.calls.push_back(started_);
    result_.messages.push_back(messages_);
  }
  if (++node.step == options_.steps)
    ++finished_;
  else
    begin_step(rank);
}

// ---- the engine ----
void Job::cycle(Rank rank) {
  Node& node = nodes_[rank];
  start_next(rank);
  const auto may_start = [&node] {
    const OrderAction opening = node.order.opening();
    if (opening.what != OrderAction::What::kLook) return opening.what == OrderAction::What::kStart;
    return node.has_room(static_cast<uint64_t>(node.planner->started()));
  };
  while (may_start()) {
    std::optional<control::StartBucket> started =
        node.planner->room(now_, node.order.first_open_bucket(node.planner->started()));
    if (!started) break;
    control::PlannerActions actions;
    actions.emplace_back(std::move(*started));
    carry_out(rank, std::move(actions));
  }
  carry_out(rank, node.planner->tick(now_, node.order.is_idle()));
  if (node.planner->asks_for_wanted(now_, node.waits)) {
    const auto is_wanted = [&](size_t) { return node.is_waiting && !program_.cross_step; };
    carry_out(rank, node.planner->wanted(now_, node.waits, is_wanted));
  }
  if (rank == 0) coordinate();
}

void Job::coordinate() {
  std::vector<control::Response> responses = rounds_->take_round(now_, nodes_[0].order.backlog());
  if (responses.empty()) {
    if (rounds_->next_round() > now_) at(rounds_->next_round(), [this] { coordinate(); });
    return;
  }
  respond(std::move(responses));
  carry_out(0, rounds_->responded());
}

void Job::respond(std::vector<control::Response> responses) {
  const auto shared = std::make_shared<const std::vector<control::Response>>(std::move(responses));
  broadcast([this, shared](Rank rank) { accept(rank, *shared); });
  accept(0, *shared);
}

void Job::accept(Rank rank, const std::vector<control::Response>& responses) {
  Node& node = nodes_[rank];
  for (control::Response response : responses) {
    auto actions = node.planner->response(response, now_);
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

void Job::negotiate(Rank rank, std::vector<control::Request> requests) {
  send_to_coordinator(
      rank, [this, rank, begun = nodes_[rank].planner->plans_begun(), requests = std::move(requests)] {
        rounds_->submitted(rank, begun, requests, now_, nullptr);
        if (rank != 0) cycle(0);
      });
}

void Job::start_next(Rank rank) {
  Node& node = nodes_[rank];
  OrderAction action = node.order.next();
  while (action.what != OrderAction::What::kNothing) {
    if (action.what == OrderAction::What::kLook) {
      action = node.order.looked({.backend = 0, .has_room = node.has_room(node.kept[action.key].place)});
      continue;
    }
    RUEDA_CHECK(action.what == OrderAction::What::kStart, "a simulated job has calls only");
    const control::Ordered& call = node.order.running().back();
    node.is_busy[call.place % node.is_busy.size()] = true;
    if (rank == 0) ++started_;
    calls_.start(rank, place_of(call), *node.kept[call.key].bucket,
                 call.origin == control::BatchOrigin::kPlanned, now_);
    action = node.order.next();
  }
}

void Job::carry_out(Rank rank, control::PlannerActions actions) {
  for (control::PlannerAction& action : actions) std::visit([&](auto& one) { carry_out(rank, one); }, action);
}

void Job::carry_out(Rank rank, control::TellDeparture& told) {
  send_to_coordinator(rank, [this, news = told.news] { carry_out(0, nodes_[0].planner->on_depart(news)); });
}

void Job::carry_out(Rank rank, control::TellPosition& told) {
  nodes_[rank].order.pause();
  send_to_coordinator(rank, [this, rank, news = told.news] {
    auto actions = nodes_[0].planner->on_position(rank, news);
    RUEDA_CHECK(actions.is_ok(), "a rank knows how far it is");
    carry_out(0, std::move(actions).value());
    cycle(0);
  });
}

void Job::carry_out(Rank rank, control::StartBucket& started) {
  Node& node = nodes_[rank];
  node.keep(node.order.enqueue_planned(*started.bucket, started.number), started.bucket);
  start_next(rank);
}

void Job::carry_out(Rank, control::FreezeAll& frozen) {
  broadcast(
      [this, news = frozen.news](Rank rank) { carry_out(rank, nodes_[rank].planner->on_freeze(news)); });
  carry_out(0, nodes_[0].planner->on_freeze(frozen.news));
}

void Job::carry_out(Rank rank, control::SetGeneration& set) {
  nodes_[rank].order.set_generation(set.generation);
}
void Job::carry_out(Rank rank, control::Resume&) { nodes_[rank].order.resume(); }

// A bucket that not all ranks have started. Its tensors are negotiated.
void Job::carry_out(Rank rank, control::Cancel& cancelled) {
  Node& node = nodes_[rank];
  const OrderAction action = node.order.cancel(cancelled.number);
  if (action.what == OrderAction::What::kForget) return;
  const auto running = std::ranges::find(node.order.running(), action.key, &control::Ordered::key);
  calls_.cancel(place_of(*running));
  node.is_busy[running->place % node.is_busy.size()] = false;
  node.order.ended(action.key);
}

}  // namespace rueda::simulate
