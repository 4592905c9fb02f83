// A thousand ranks in one process under virtual time: the decisions of the Coordinator and of every rank's
// Planner and Order are values, so the test carries them out itself, as the engine does. Messages take 50 us;
// a call ends 200 us after its last rank has started it, and two run at once; one that is cancelled ends
// after 10 us. Deterministic: equal times keep their order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>

#include "control_fixture.h"
#include "rueda/control/order.h"
#include "rueda/control/rounds.h"

namespace rueda::control::simulation_test {

constexpr Rank kRanks = 1000;
constexpr Nanos kMicrosecond = 1000;
constexpr Nanos kFlight = 50 * kMicrosecond;
constexpr Nanos kCallTime = 200 * kMicrosecond;
constexpr Nanos kCancelTime = 10 * kMicrosecond;
constexpr Nanos kTick = 100 * kMillisecond;
constexpr size_t kRoom = 2;  // calls that a backend takes

// What a rank does in a step: submits these, each after a time of computing, then waits for all of them.
struct Submission {
  std::string name;
  Nanos after = kMillisecond;
};
using Step = std::vector<Submission>;
using Program = std::function<Step(Rank rank, int step)>;

class World {
 public:
  World(Program program, int steps) : program_(std::move(program)), steps_(steps), nodes_(kRanks) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      nodes_[rank].planner = std::make_unique<Planner>(
          Planner::Options{.may_plan = rank == 0, .bucket_bytes = 1 << 20, .me = rank, .ranks = kRanks});
      begin_step(rank);
    }
    rounds_ = std::make_unique<Rounds>(world_of(kRanks), Rounds::Options{}, *nodes_[0].planner);
    at(kTick, [this] { tick(); });
  }

  // Until all ranks have finished their steps, or so much time has passed.
  void run(Nanos at_most) {
    while (!events_.empty() && finished_ < kRanks && events_.top().when <= at_most) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.when;
      event.what();
    }
  }
  // Until every rank has begun this step.
  void run_to_step(int step, Nanos at_most) {
    const auto is_there = [&](const Node& node) { return node.step >= step; };
    while (!std::ranges::all_of(nodes_, is_there) && now_ < at_most) run(now_ + kMillisecond);
  }

  [[nodiscard]] bool is_finished() const { return finished_ == kRanks; }
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] int64_t messages() const { return messages_; }
  [[nodiscard]] int64_t calls() const { return calls_; }
  [[nodiscard]] int64_t cancelled() const { return cancelled_; }
  [[nodiscard]] const std::vector<std::string>& stalls() const { return stalls_; }
  [[nodiscard]] const std::set<std::string>& departures() const { return departures_; }
  [[nodiscard]] bool have_all_plan() const {
    return std::ranges::all_of(nodes_, [](const Node& node) { return node.planner->has_plan(); });
  }
  [[nodiscard]] std::set<int64_t> plans_begun() const {
    std::set<int64_t> begun;
    for (const Node& node : nodes_) begun.insert(node.planner->plans_begun());
    return begun;
  }

 private:
  struct Event {
    Nanos when = 0;
    uint64_t order = 0;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return std::tie(when, order) > std::tie(other.when, other.order);
    }
  };
  using Place = std::pair<uint16_t, uint64_t>;  // generation, and place in it: the same call on all ranks
  static Place place_of(const Ordered& one) { return {one.generation, one.place}; }
  struct Open {
    OperationId operation = 0;
    int times = 0;  // that this rank has submitted the name
    TensorRequest request;
  };
  struct Node {
    std::unique_ptr<Planner> planner;
    Order order{1};
    std::vector<std::vector<std::string>> names;  // [key] tensors of what is in the order
    std::map<std::string, Open> open;
    std::map<std::string, int> times;
    OperationId last_operation = 0;
    uint64_t waits = 0;
    int step = 0;
    size_t to_submit = 0;
    [[nodiscard]] bool has_room() const { return order.running().size() < kRoom; }
    // Null: it does not run.
    [[nodiscard]] const Ordered* find(const Place& place) const {
      const auto at = std::ranges::find(order.running(), place, place_of);
      return at == order.running().end() ? nullptr : &*at;
    }
    void keep(const Ordered& one, std::vector<std::string> tensors) {
      if (one.key >= names.size()) names.resize(one.key + 1);
      names[one.key] = std::move(tensors);
    }
  };

  void at(Nanos when, std::function<void()> what) { events_.push({when, next_order_++, std::move(what)}); }
  void send(std::function<void()> what) {
    ++messages_;
    at(now_ + kFlight, std::move(what));
  }

  // ---- what a training loop does ----
  void begin_step(Rank rank) {
    Node& node = nodes_[rank];
    const Step step = program_(rank, node.step);
    node.to_submit = step.size();
    Nanos when = now_;
    for (const Submission& one : step) {
      when += one.after;
      at(when, [this, rank, name = one.name] { submit(rank, name); });
    }
  }
  void submit(Rank rank, const std::string& name) {
    Node& node = nodes_[rank];
    Open& open = node.open[name];
    ASSERT_EQ(open.operation, 0) << "rank " << rank << " has " << name << " in flight";
    open = {.operation = ++node.last_operation,
            .times = ++node.times[name],
            .request = allreduce(name, {50'000})};
    Planner::Decision decision = node.planner->submitted(open.operation, std::vector{&open.request}, now_);
    carry_out(rank, std::move(decision.actions));
    if (!decision.is_taken) negotiate(rank, {open.request});
    if (--node.to_submit == 0) ++node.waits;
    cycle(rank);
  }
  void complete(Rank rank, OrderKey key) {
    Node& node = nodes_[rank];
    ASSERT_TRUE(node.order.ended(key));
    for (const std::string& name : node.names[key]) node.open.erase(name);
    if (node.open.empty() && node.to_submit == 0) {
      if (++node.step == steps_)
        ++finished_;
      else
        begin_step(rank);
    }
    cycle(rank);
  }

  // ---- what an engine does ----
  void cycle(Rank rank) {
    Node& node = nodes_[rank];
    start_next(rank);
    while (may_start_bucket(node)) {
      std::optional<StartBucket> started =
          node.planner->room(now_, node.order.first_open_bucket(node.planner->started()));
      if (!started) break;
      carry_out(rank, *started);
    }
    carry_out(rank, node.planner->tick(now_, node.order.is_idle()));
    if (node.planner->asks_for_wanted(now_, node.waits)) {
      const auto waits_for_all = [&](size_t) { return node.to_submit == 0; };
      carry_out(rank, node.planner->wanted(now_, node.waits, waits_for_all));
    }
    if (rank == 0) coordinate();
  }
  void coordinate() {
    for (const StallReport& report : rounds_->take_stalls(now_)) stalls_.push_back(report.text);
    std::vector<Response> responses = rounds_->take_round(now_, nodes_[0].order.backlog());
    if (responses.empty()) return;
    respond(std::move(responses));
    carry_out(0, rounds_->responded());
  }
  void respond(std::vector<Response> responses) {
    const auto shared = std::make_shared<const std::vector<Response>>(std::move(responses));
    for (Rank rank = 1; rank < kRanks; ++rank) send([this, rank, shared] { accept(rank, *shared); });
    accept(0, *shared);
  }
  void accept(Rank rank, const std::vector<Response>& responses) {
    Node& node = nodes_[rank];
    for (Response response : responses) {
      if (std::optional<PlannerActions> actions = node.planner->response(response, now_).value())
        carry_out(rank, std::move(*actions));
      else
        node.keep(node.order.enqueue(response), names(response));
    }
    if (rank != 0) cycle(rank);
    start_next(rank);
  }
  void negotiate(Rank rank, std::vector<Request> requests) {
    if (rank == 0) return receive(0, nodes_[0].planner->plans_begun(), std::move(requests));
    send([this, rank, begun = nodes_[rank].planner->plans_begun(), requests = std::move(requests)] {
      receive(rank, begun, requests);
      cycle(0);
    });
  }
  void receive(Rank from, int64_t plans_begun, std::vector<Request> requests) {
    rounds_->submitted(from, plans_begun, std::move(requests), now_, nullptr);
  }
  void tick() {
    for (Rank rank = 0; rank < kRanks; ++rank) cycle(rank);
    at(now_ + kTick, [this] { tick(); });
  }

  static bool may_start_bucket(const Node& node) {
    const OrderAction opening = node.order.opening();
    return opening.what == OrderAction::What::kStart ||
           (opening.what == OrderAction::What::kLook && node.has_room());
  }
  void start_next(Rank rank) {
    Node& node = nodes_[rank];
    OrderAction action = node.order.next();
    while (action.what != OrderAction::What::kNothing) {
      if (action.what == OrderAction::What::kLook) {
        action = node.order.looked({.backend = 0, .has_room = node.has_room()});
        continue;
      }
      ASSERT_EQ(action.what, OrderAction::What::kStart);
      start(node.order.running().back());
      action = node.order.next();
    }
  }

  // ---- what a backend does ----
  void start(const Ordered& call) {
    const Place place = place_of(call);
    if (++starters_[place] < kRanks) return;
    ++calls_;
    check_agreement(place);
    at(now_ + kCallTime, [this, place] {
      starters_.erase(place);
      for (Rank each = 0; each < kRanks; ++each) complete(each, nodes_[each].find(place)->key);
    });
  }
  // All ranks run the same tensors, each of them as often submitted as everywhere else.
  void check_agreement(const Place& place) {
    const Node& first = nodes_[0];
    for (const Node& node : nodes_) {
      const Ordered *running = node.find(place), *there = first.find(place);
      ASSERT_TRUE(running != nullptr && there != nullptr);
      ASSERT_EQ(node.names[running->key], first.names[there->key]);
      for (const std::string& name : node.names[running->key])
        ASSERT_EQ(node.open.at(name).times, first.open.at(name).times) << name;
    }
  }
  void cancel(Rank rank, int64_t bucket) {
    Order& order = nodes_[rank].order;
    const OrderAction action = order.cancel(bucket);
    ++cancelled_;
    if (action.what == OrderAction::What::kForget) return;
    const auto running = std::ranges::find(order.running(), action.key, &Ordered::key);
    int& starters = starters_.at(place_of(*running));
    ASSERT_LT(starters--, kRanks) << "it runs on all ranks";
    at(now_ + kCancelTime, [this, rank, key = action.key] {
      ASSERT_FALSE(nodes_[rank].order.ended(key)) << "its tensors are still open";
      cycle(rank);
    });
  }

  void carry_out(Rank rank, PlannerActions actions) {
    for (PlannerAction& action : actions) std::visit([&](auto& one) { carry_out(rank, one); }, action);
  }
  void carry_out(Rank rank, TellDeparture& told) {
    departures_.insert(told.why);
    const auto tell = [this, news = told.news] { carry_out(0, nodes_[0].planner->on_depart(news)); };
    rank == 0 ? tell() : send(tell);
  }
  void carry_out(Rank rank, TellPosition& told) {
    nodes_[rank].order.pause();
    const auto tell = [this, rank, news = told.news] {
      carry_out(0, nodes_[0].planner->on_position(rank, news).value());
      cycle(0);
    };
    rank == 0 ? at(now_, tell) : send(tell);
  }
  void carry_out(Rank rank, Negotiate& negotiated) { negotiate(rank, std::move(negotiated.requests)); }
  void carry_out(Rank rank, StartBucket& started) {
    Node& node = nodes_[rank];
    node.keep(node.order.enqueue_planned(*started.bucket, started.number), names(*started.bucket));
    start_next(rank);
  }
  void carry_out(Rank, PlanBegun&) {}
  void carry_out(Rank rank, Cancel& cancelled) { cancel(rank, cancelled.number); }
  void carry_out(Rank, FreezeAll& frozen) {
    for (Rank rank = 1; rank < kRanks; ++rank)
      send([this, rank, news = frozen.news] { carry_out(rank, nodes_[rank].planner->on_freeze(news)); });
    carry_out(0, nodes_[0].planner->on_freeze(frozen.news));
  }
  void carry_out(Rank, Respond& said) { respond(std::move(said.responses)); }
  void carry_out(Rank, PlanOver&) {}
  void carry_out(Rank rank, SetGeneration& set) { nodes_[rank].order.set_generation(set.generation); }
  void carry_out(Rank rank, Resume&) { nodes_[rank].order.resume(); }
  void carry_out(Rank, Discard&) { FAIL() << "no messages were sent that somebody would have to take"; }

  Program program_;
  int steps_;
  std::vector<Node> nodes_;
  std::unique_ptr<Rounds> rounds_;  // of rank 0
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  Nanos now_ = 0;
  std::map<Place, int> starters_;  // of calls under way: how many ranks have started them
  Rank finished_ = 0;
  int64_t messages_ = 0, calls_ = 0, cancelled_ = 0;
  std::vector<std::string> stalls_;
  std::set<std::string> departures_;
};

}  // namespace rueda::control::simulation_test
