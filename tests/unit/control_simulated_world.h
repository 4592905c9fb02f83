// A thousand ranks in one process under virtual time: the decisions of the Coordinator and of every rank's
// Planner and Order are values, so the test carries them out itself, as the engine does. Messages take 50 us;
// a call ends 200 us after its last member has started it, and two run at once on each rank, those with odd
// and even places; one that is cancelled ends after 10 us. Deterministic: equal times keep their order. Where
// hosts have several ranks, the lowest rank of each passes on what the others say, and hears for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "../sanitizers.h"
#include "control_fixture.h"
#include "rueda/control/order.h"
#include "rueda/control/relay.h"
#include "rueda/control/rounds.h"
#include "simulate/agenda.h"

namespace rueda::control::simulation_test {

constexpr Rank kRanks = RUEDA_UNDER_ASAN ? 200 : 1000;  // under AddressSanitizer a tenth of the speed
constexpr Nanos kMicrosecond = 1000;
constexpr Nanos kFlight = 50 * kMicrosecond;
constexpr Nanos kCallTime = 200 * kMicrosecond;
constexpr Nanos kCancelTime = 10 * kMicrosecond;
constexpr Nanos kTick = 100 * kMillisecond;

// What a rank does in a step: submits these, each after a time of computing, then waits for all of them.
struct Submission {
  std::string name;
  Nanos after = kMillisecond;
  int32_t set = 0;
  bool waits = false;         // for all that is open, before it goes on
  int64_t number = 0;         // in the name, behind it; 0: none
  int64_t rows = -1;          // of an allgather; -1: it is an allreduce
  int64_t elements = 50'000;  // of an allreduce
};
using Step = std::vector<Submission>;
using Program = std::function<Step(Rank rank, int step)>;

class World {
 public:
  // ranks_per_host: 0 means that all are children of rank 0.
  World(Program program, int steps, Rank ranks = kRanks, SetMembers sets = {},
        const Tuner::Options& tuner = {}, Rank ranks_per_host = 0)
      : program_(std::move(program)),
        steps_(steps),
        ranks_(ranks),
        sets_(std::move(sets)),
        nodes_(static_cast<size_t>(ranks)) {
    for (Rank rank = 0; rank < ranks_; ++rank) {
      nodes_[rank].planner = std::make_unique<Planner>(Planner::Options{
          .may_plan = rank == 0, .bucket_bytes = 1 << 20, .me = rank, .ranks = ranks_, .tuner = tuner});
      begin_step(rank);
    }
    make_tree(ranks_per_host);
    CoordinatorOptions options = world_of(ranks_);
    options.process_sets = sets_;
    rounds_ = std::make_unique<Rounds>(options, Rounds::Options{}, *nodes_[0].planner);
    at(kTick, [this] { tick(); });
  }

  // Until all ranks have finished their steps, or so much time has passed.
  void run(Nanos at_most) {
    while (finished_ < ranks_ && agenda_.next() <= at_most) agenda_.run_next();
  }
  // Until every rank has begun this step.
  void run_to_step(int step, Nanos at_most) {
    const auto is_there = [&](const Node& node) { return node.step >= step; };
    while (!std::ranges::all_of(nodes_, is_there) && now() < at_most) run(now() + kMillisecond);
  }

  [[nodiscard]] bool is_finished() const { return finished_ == ranks_; }
  [[nodiscard]] Nanos now() const { return agenda_.now(); }
  [[nodiscard]] int64_t messages() const { return messages_; }
  [[nodiscard]] int64_t messages_at_root() const { return messages_at_root_; }  // to and from rank 0
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
  using Place = std::pair<uint16_t, uint64_t>;  // generation, and place in it: the same call on all ranks
  static Place place_of(const Ordered& one) { return {one.generation, one.place}; }
  // A tensor: its set, and its name there.
  using Name = std::pair<int32_t, std::string>;
  struct Open {
    OperationId operation = 0;
    int times = 0;  // that this rank has submitted the name
    TensorRequest request;
  };
  struct Kept {
    std::vector<Name> names;
    int32_t set = 0;
    uint64_t place = 0;
  };
  // A call that some members have started.
  struct UnderWay {
    Rank starters = 0;
    std::vector<Rank> members;
  };
  struct Node {
    std::unique_ptr<Planner> planner;
    std::unique_ptr<Relay> relay;  // of a leader
    std::vector<Rank> children;
    Rank parent = -1;
    Order order{1};
    std::vector<Kept> kept;  // [key] what is in the order
    std::map<Name, Open> open;
    std::vector<Name> planned;  // [position in the plan] what was submitted there last
    std::map<Name, int> times;
    OperationId last_operation = 0;
    uint64_t waits = 0;
    int step = 0;
    Step to_do;  // in this step
    size_t done = 0;
    bool is_waiting = false;
    [[nodiscard]] bool has_room(uint64_t place) const {
      return std::ranges::none_of(order.running(),
                                  [&](const Ordered& one) { return one.place % 2 == place % 2; });
    }
    // Null: it does not run.
    [[nodiscard]] const Ordered* find(const Place& place) const {
      const auto at = std::ranges::find(order.running(), place, place_of);
      return at == order.running().end() ? nullptr : &*at;
    }
    void keep(const Ordered& one, std::vector<Name> tensors) {
      if (one.key >= kept.size()) kept.resize(one.key + 1);
      kept[one.key] = {.names = std::move(tensors), .set = one.process_set, .place = one.place};
    }
  };

  void at(Nanos when, std::function<void()> what) { agenda_.at(when, std::move(what)); }
  void send(Rank from, Rank to, std::function<void()> what) {
    ++messages_;
    if (from == 0 || to == 0) ++messages_at_root_;
    at(now() + kFlight, std::move(what));
  }

  // ---- the way between rank 0 and the others ----
  void make_tree(Rank ranks_per_host) {
    constexpr Rank kFanOut = 16;
    for (Rank rank = 1; rank < ranks_; ++rank) {
      Rank parent = 0;
      if (ranks_per_host > 0 && rank % ranks_per_host != 0) parent = rank - rank % ranks_per_host;
      if (ranks_per_host > 0 && rank % ranks_per_host == 0)
        parent = (rank / ranks_per_host - 1) / kFanOut * ranks_per_host;
      nodes_[rank].parent = parent;
      nodes_[parent].children.push_back(rank);
    }
    std::vector<RankSet> below(static_cast<size_t>(ranks_));
    for (Rank rank = 0; rank < ranks_; ++rank)
      for (Rank above = rank; above >= 0; above = nodes_[above].parent) below[above].add(rank);
    for (Rank rank = 1; rank < ranks_; ++rank)
      if (!nodes_[rank].children.empty())
        nodes_[rank].relay = std::make_unique<Relay>(Relay::Options{.below = below[rank], .sets = sets_});
  }
  void send_up(Rank rank, MessageType type, Bytes payload) {
    Statement statement{.from = rank, .type = type, .payload = std::move(payload)};
    if (nodes_[rank].relay) return pass_up(rank, rank, {std::move(statement)});
    send(rank, nodes_[rank].parent, [this, rank, statement] { arrive(rank, {statement}); });
  }
  void arrive(Rank from, const std::vector<Statement>& statements) {
    const Rank to = nodes_[from].parent;
    if (to != 0) return pass_up(to, from, statements);
    for (const Statement& statement : statements) on_statement(statement);
    cycle(0);
  }
  void pass_up(Rank leader, Rank child, const std::vector<Statement>& statements) {
    for (const Statement& statement : statements)
      ASSERT_TRUE(nodes_[leader].relay->take(child, statement, now()).is_ok());
    send_due(leader);
  }
  void send_due(Rank leader) {
    Relay& relay = *nodes_[leader].relay;
    std::vector<Statement> due = relay.due(now());
    if (!due.empty())
      send(leader, nodes_[leader].parent, [this, leader, due = std::move(due)] { arrive(leader, due); });
    if (const Nanos next = relay.next_event(); next < std::numeric_limits<Nanos>::max())
      at(next, [this, leader] { send_due(leader); });
  }
  void on_statement(const Statement& statement) {
    if (statement.type == MessageType::kRequests) {
      Submitted submitted = decode_submitted(statement.payload).value();
      return receive(statement.from, submitted.plans_begun, std::move(submitted.requests));
    }
    const PlanReport news = decode_plan_news(statement.payload).value();
    if (statement.type == MessageType::kPlanDepart)
      return carry_out(0, nodes_[0].planner->maker().on_depart(news));
    for (const Rank rank : statement.from.ranks())
      carry_out(0, nodes_[0].planner->maker().on_position(rank, news).value());
  }
  void to_all_below(Rank rank, const std::function<void(Rank)>& what) {
    for (const Rank child : nodes_[rank].children) {
      send(rank, child, [this, child, what] {
        to_all_below(child, what);
        what(child);
      });
    }
  }

  [[nodiscard]] static std::vector<Name> names_in(const Response& response) {
    std::vector<Name> all;
    const auto* bucket = std::get_if<Bucket>(&response);
    for (const std::string& name : names(response))
      all.emplace_back(bucket == nullptr ? 0 : bucket->process_set, name);
    return all;
  }
  [[nodiscard]] std::vector<Rank> members_of(int32_t set) const {
    if (set != 0) return sets_.at(set);
    std::vector<Rank> all(nodes_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // ---- what a training loop does ----
  void begin_step(Rank rank) {
    Node& node = nodes_[rank];
    node.to_do = program_(rank, node.step);
    node.done = 0;
    go_on(rank);
  }
  void go_on(Rank rank) {
    Node& node = nodes_[rank];
    node.is_waiting = false;
    if (node.done < node.to_do.size())
      at(now() + node.to_do[node.done].after, [this, rank] { submit(rank); });
    else if (++node.step == steps_)
      ++finished_;
    else
      begin_step(rank);
  }
  void submit(Rank rank) {
    Node& node = nodes_[rank];
    const Submission& one = node.to_do[node.done];
    const std::string& name = one.number == 0 ? one.name : one.name + std::to_string(one.number);
    Open& open = node.open[{one.set, name}];
    ASSERT_EQ(open.operation, 0) << "rank " << rank << " has " << name << " in flight";
    open = {.operation = ++node.last_operation,
            .times = ++node.times[{one.set, name}],
            .request = allreduce(name, {one.elements})};
    if (one.rows >= 0) open.request = collective(Collective::kAllgather, name, {one.rows, 10});
    open.request.process_set = one.set;
    if (one.number != 0) open.request.numbered_at = static_cast<uint16_t>(one.name.size());
    Planner::Decision decision = node.planner->submitted(open.operation, std::vector{&open.request}, now());
    for (const size_t position : decision.positions) node.planned[position] = {one.set, name};
    carry_out(rank, std::move(decision.actions));
    if (!decision.is_taken) negotiate(rank, {open.request});
    ++node.done;
    node.is_waiting = one.waits || node.done == node.to_do.size();
    if (node.is_waiting)
      ++node.waits;
    else
      go_on(rank);
    cycle(rank);
  }
  void complete(Rank rank, OrderKey key) {
    Node& node = nodes_[rank];
    ASSERT_TRUE(node.order.ended(key));
    for (const Name& name : node.kept[key].names) node.open.erase(name);
    if (node.open.empty() && node.is_waiting) go_on(rank);
    cycle(rank);
  }

  // ---- what an engine does ----
  void cycle(Rank rank) {
    Node& node = nodes_[rank];
    start_next(rank);
    while (may_start_bucket(node)) {
      std::optional<StartBucket> started =
          node.planner->room(now(), node.order.first_open_bucket(node.planner->started()));
      if (!started) break;
      carry_out(rank, *started);
    }
    carry_out(rank, node.planner->tick(now(), node.order.is_idle()));
    if (node.planner->asks_for_wanted(now(), node.waits)) {
      const auto waits_for_all = [&](size_t) { return node.is_waiting; };
      carry_out(rank, node.planner->wanted(now(), node.waits, waits_for_all));
    }
    if (rank == 0) coordinate();
  }
  void coordinate() {
    for (const StallReport& report : rounds_->take_stalls(now())) stalls_.push_back(report.text);
    std::vector<Response> responses = rounds_->take_round(now(), nodes_[0].order.backlog());
    if (responses.empty()) return;
    respond(std::move(responses));
    carry_out(0, rounds_->responded());
  }
  void respond(std::vector<Response> responses) {
    const auto shared = std::make_shared<const std::vector<Response>>(std::move(responses));
    to_all_below(0, [this, shared](Rank rank) {
      if (nodes_[rank].relay) nodes_[rank].relay->saw(*shared);
      accept(rank, *shared);
    });
    accept(0, *shared);
  }
  void accept(Rank rank, const std::vector<Response>& responses) {
    Node& node = nodes_[rank];
    for (Response response : responses) {
      const bool begins = std::holds_alternative<PlanBegin>(response);
      if (std::optional<PlannerActions> actions = node.planner->response(response, now()).value()) {
        if (begins) find_planned(node);
        carry_out(rank, std::move(*actions));
      } else
        node.keep(node.order.enqueue(response), names_in(response));
    }
    if (rank != 0) cycle(rank);
    start_next(rank);
  }
  void negotiate(Rank rank, std::vector<Request> requests) {
    if (rank == 0) return receive(0, nodes_[0].planner->plans_begun(), std::move(requests));
    send_up(rank, MessageType::kRequests, encode(nodes_[rank].planner->plans_begun(), requests));
  }
  void receive(const RankSet& from, int64_t plans_begun, std::vector<Request> requests) {
    rounds_->submitted(from, plans_begun, std::move(requests), now(), nullptr);
  }
  void tick() {
    for (Rank rank = 0; rank < ranks_; ++rank) cycle(rank);
    at(now() + kTick, [this] { tick(); });
  }

  static bool may_start_bucket(const Node& node) {
    const OrderAction opening = node.order.opening();
    return opening.what == OrderAction::What::kStart ||
           (opening.what == OrderAction::What::kLook &&
            node.has_room(static_cast<uint64_t>(node.planner->started())));
  }
  void start_next(Rank rank) {
    Node& node = nodes_[rank];
    OrderAction action = node.order.next();
    while (action.what != OrderAction::What::kNothing) {
      if (action.what == OrderAction::What::kLook) {
        action = node.order.looked(look(rank, action.key));
        continue;
      }
      if (action.what == OrderAction::What::kStart) start(node.order.running().back());
      action = node.order.next();
    }
  }
  Readiness look(Rank rank, OrderKey key) {
    Node& node = nodes_[rank];
    const Kept& kept = node.kept[key];
    if (!is_member(sets_, kept.set, rank)) return {};
    return {.backend = 0, .has_room = node.has_room(kept.place)};
  }

  // ---- what a backend does ----
  void start(const Ordered& call) {
    const Place place = place_of(call);
    UnderWay& under_way = under_way_[place];
    if (under_way.starters == 0) under_way.members = members_of(call.process_set);
    if (std::cmp_less(++under_way.starters, under_way.members.size())) return;
    ++calls_;
    check_agreement(place, under_way.members);
    at(now() + kCallTime, [this, place] {
      const std::vector<Rank> members = under_way_.extract(place).mapped().members;
      for (const Rank each : members) complete(each, nodes_[each].find(place)->key);
    });
  }
  // All members run the same tensors, each of them as often submitted as everywhere else.
  void check_agreement(const Place& place, const std::vector<Rank>& members) {
    const Node& first = nodes_[members.front()];
    for (const Rank rank : members) {
      const Node& node = nodes_[rank];
      const Ordered *running = node.find(place), *there = first.find(place);
      ASSERT_TRUE(running != nullptr && there != nullptr);
      ASSERT_EQ(node.kept[running->key].names, first.kept[there->key].names);
      for (const Name& name : node.kept[running->key].names)
        ASSERT_EQ(node.open.at(name).times, first.open.at(name).times) << name.second;
    }
  }
  void cancel(Rank rank, int64_t bucket) {
    Order& order = nodes_[rank].order;
    const OrderAction action = order.cancel(bucket);
    ++cancelled_;
    if (action.what == OrderAction::What::kForget) return;
    const auto running = std::ranges::find(order.running(), action.key, &Ordered::key);
    const auto under_way = under_way_.find(place_of(*running));
    ASSERT_NE(under_way, under_way_.end());
    ASSERT_TRUE(std::cmp_less(under_way->second.starters, under_way->second.members.size()))
        << "it runs on all members";
    if (--under_way->second.starters == 0) under_way_.erase(under_way);
    at(now() + kCancelTime, [this, rank, key = action.key] {
      ASSERT_FALSE(nodes_[rank].order.ended(key)) << "its tensors are still open";
      cycle(rank);
    });
  }

  void carry_out(Rank rank, PlannerActions actions) {
    for (PlannerAction& action : actions) std::visit([&](auto& one) { carry_out(rank, one); }, action);
  }
  void carry_out(Rank rank, TellDeparture& told) {
    departures_.insert(told.why);
    if (rank != 0) return send_up(rank, MessageType::kPlanDepart, encode(told.news));
    carry_out(0, nodes_[0].planner->maker().on_depart(told.news));
  }
  void carry_out(Rank rank, TellPosition& told) {
    nodes_[rank].order.pause();
    if (rank != 0) return send_up(rank, MessageType::kPlanPosition, encode(told.news));
    at(now(), [this, news = told.news] {
      carry_out(0, nodes_[0].planner->maker().on_position(0, news).value());
      cycle(0);
    });
  }
  void carry_out(Rank rank, Negotiate& negotiated) { negotiate(rank, std::move(negotiated.requests)); }
  void carry_out(Rank rank, StartBucket& started) {
    Node& node = nodes_[rank];
    std::vector<Name> names;
    for (size_t i = 0; i < started.bucket->entries.size(); ++i)
      names.push_back(node.planned.at(started.first_position + i));
    if (started.row_counts != nullptr)
      node.keep(node.order.enqueue_planned(*started.row_counts, started.number - 1), {});
    node.keep(node.order.enqueue_planned(*started.bucket, started.number), std::move(names));
    start_next(rank);
  }
  void carry_out(Rank, PlanBegun&) {}
  // What was submitted before the plan began, and belongs to it.
  void find_planned(Node& node) {
    node.planned.assign(node.planner->planned_tensors(), {});
    node.planner->for_each_waiting([&](size_t position, const LeftOver& one) {
      node.planned[position] = {one.request.process_set, one.request.name};
    });
  }
  void carry_out(Rank rank, Cancel& cancelled) { cancel(rank, cancelled.number); }
  void carry_out(Rank, FreezeAll& frozen) {
    to_all_below(
        0, [this, news = frozen.news](Rank rank) { carry_out(rank, nodes_[rank].planner->on_freeze(news)); });
    carry_out(0, nodes_[0].planner->on_freeze(frozen.news));
  }
  void carry_out(Rank, Respond& said) { respond(std::move(said.responses)); }
  void carry_out(Rank, PlanOver&) {}
  void carry_out(Rank rank, SetGeneration& set) { nodes_[rank].order.set_generation(set.generation); }
  void carry_out(Rank rank, Resume&) { nodes_[rank].order.resume(); }
  void carry_out(Rank, Discard&) { FAIL() << "no messages were sent that somebody would have to take"; }

  Program program_;
  int steps_;
  Rank ranks_;
  SetMembers sets_;
  std::vector<Node> nodes_;
  std::unique_ptr<Rounds> rounds_;  // of rank 0
  simulate::Agenda agenda_;
  std::map<Place, UnderWay> under_way_;
  Rank finished_ = 0;
  int64_t messages_ = 0, messages_at_root_ = 0, calls_ = 0, cancelled_ = 0;
  std::vector<std::string> stalls_;
  std::set<std::string> departures_;
};

}  // namespace rueda::control::simulation_test
