// A thousand ranks in one process under virtual time: the decisions of the Coordinator and of every rank's
// Planner are values, so the test carries them out itself. Messages take 50 us; a call ends 200 us after its
// last rank has started it, and two run at once. Deterministic: equal times keep their order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>

#include "control_fixture.h"
#include "rueda/control/rounds.h"

namespace rueda::control::simulation_test {
namespace {

constexpr Rank kRanks = 1000;
constexpr Nanos kMicrosecond = 1000;
constexpr Nanos kFlight = 50 * kMicrosecond;
constexpr Nanos kCallTime = 200 * kMicrosecond;
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
  using Key = std::pair<int64_t, int64_t>;  // (plan, bucket), or (0, number in the global order)
  struct Call {
    Key key;
    std::vector<std::string> names;
  };
  struct Open {
    OperationId operation = 0;
    int times = 0;  // that this rank has submitted the name
    TensorRequest request;
  };
  struct Node {
    std::unique_ptr<Planner> planner;
    std::deque<Call> queue;
    std::vector<Call> running;
    std::map<std::string, Open> open;
    std::map<std::string, int> times;
    OperationId last_operation = 0;
    int64_t agreed = 0;  // calls
    uint64_t waits = 0;
    int step = 0;
    size_t to_submit = 0;
    [[nodiscard]] bool is_idle() const { return queue.empty() && running.empty(); }
    [[nodiscard]] bool has_room() const { return queue.empty() && running.size() < kRoom; }
    [[nodiscard]] auto find(const Key& key) { return std::ranges::find(running, key, &Call::key); }
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
  void complete(Rank rank, const Call& call) {
    Node& node = nodes_[rank];
    for (const std::string& name : call.names) node.open.erase(name);
    node.running.erase(node.find(call.key));
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
    while (node.has_room()) {
      std::optional<StartBucket> started = node.planner->room(now_);
      if (!started) break;
      carry_out(rank, *started);
    }
    carry_out(rank, node.planner->tick(now_, node.is_idle()));
    if (node.planner->asks_for_wanted(now_, node.waits)) {
      std::vector<std::string> names;
      if (node.to_submit == 0)
        for (const auto& [name, open] : node.open) names.push_back(name);
      carry_out(rank, node.planner->wanted(now_, node.waits, names));
    }
    if (rank == 0) coordinate();
  }
  void coordinate() {
    Node& node = nodes_[0];
    for (const StallReport& report : rounds_->take_stalls(now_)) stalls_.push_back(report.text);
    const size_t backlog = node.queue.size() + node.running.size();
    std::vector<Response> responses = rounds_->take_round(now_, backlog);
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
        node.queue.push_back({.key = {0, ++node.agreed}, .names = names(response)});
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

  // ---- what a backend does ----
  void start_next(Rank rank) {
    Node& node = nodes_[rank];
    while (node.running.size() < kRoom && !node.queue.empty()) {
      const Call call = node.running.emplace_back(std::move(node.queue.front()));
      node.queue.pop_front();
      std::vector<Rank>& started = started_[call.key];
      started.push_back(rank);
      if (std::cmp_less(started.size(), kRanks)) continue;
      ++calls_;
      check_agreement(call);
      at(now_ + kCallTime, [this, call] {
        started_.erase(call.key);
        for (Rank each = 0; each < kRanks; ++each) complete(each, call);
      });
    }
  }
  // All ranks run the same tensors, each of them as often submitted as everywhere else.
  void check_agreement(const Call& call) {
    for (Node& node : nodes_) {
      const auto running = node.find(call.key);
      ASSERT_TRUE(running != node.running.end() && running->names == call.names);
      for (const std::string& name : call.names)
        ASSERT_EQ(node.open.at(name).times, nodes_[0].open.at(name).times) << name;
    }
  }
  void cancel(Rank rank, int64_t bucket) {
    Node& node = nodes_[rank];
    const auto running = node.find({node.planner->plans_begun(), bucket});
    ASSERT_TRUE(running != node.running.end());
    ASSERT_TRUE(std::cmp_less(started_.at(running->key).size(), kRanks)) << "it runs on all ranks";
    std::erase(started_.at(running->key), rank);
    node.running.erase(running);
    ++cancelled_;
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
    const auto tell = [this, rank, news = told.news] {
      carry_out(0, nodes_[0].planner->on_position(rank, news).value());
      cycle(0);
    };
    rank == 0 ? at(now_, tell) : send(tell);
  }
  void carry_out(Rank rank, Negotiate& negotiated) { negotiate(rank, std::move(negotiated.requests)); }
  void carry_out(Rank rank, StartBucket& started) {
    Node& node = nodes_[rank];
    node.queue.push_back(
        {.key = {node.planner->plans_begun(), started.number}, .names = names(*started.bucket)});
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
  void carry_out(Rank, SetGeneration&) {}
  void carry_out(Rank, Resume&) {}
  void carry_out(Rank, Discard&) { FAIL() << "no messages were sent that somebody would have to take"; }

  Program program_;
  int steps_;
  std::vector<Node> nodes_;
  std::unique_ptr<Rounds> rounds_;  // of rank 0
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  Nanos now_ = 0;
  std::map<Key, std::vector<Rank>> started_;  // calls that not all ranks have started, or that run
  Rank finished_ = 0;
  int64_t messages_ = 0, calls_ = 0, cancelled_ = 0;
  std::vector<std::string> stalls_;
  std::set<std::string> departures_;
};

// Six gradients of 200 KB, so that buckets of 1 MiB hold five; every rank computes at a pace of its own.
Step training_step(Rank rank) {
  Step step;
  for (int i = 0; i < 6; ++i)
    step.push_back(
        {.name = "gradient." + std::to_string(i), .after = kMillisecond + rank * kMicrosecond / 10});
  return step;
}

TEST(Simulation, a_thousand_ranks_learn_a_plan_and_say_no_more_word) {
  World world([](Rank rank, int) { return training_step(rank); }, 40);
  world.run_to_step(10, kSecond);
  ASSERT_TRUE(world.have_all_plan());
  const int64_t messages = world.messages();
  world.run(10 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_EQ(world.messages(), messages);
  EXPECT_EQ(world.plans_begun(), std::set<int64_t>{1});
  EXPECT_EQ(world.cancelled(), 0);
  EXPECT_LT(world.now(), 40 * 10 * kMillisecond);
}

TEST(Simulation, a_rank_that_submits_something_else_ends_the_plan_in_good_order_everywhere) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step != 20) return submissions;
    // Ranks come to it at different places of the step, so that some are in the middle of a bucket.
    submissions.insert(submissions.begin() + rank % 7, {.name = "metric"});
    return submissions;
  };
  World world(program, 60);
  world.run_to_step(15, kSecond);
  ASSERT_TRUE(world.have_all_plan());
  world.run(10 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_TRUE(world.departures().contains("it submits metric"));
  EXPECT_EQ(world.plans_begun(), std::set<int64_t>{2}) << "it is learned again";
  EXPECT_TRUE(world.have_all_plan());
}

TEST(Simulation, a_bucket_that_not_all_ranks_have_started_is_cancelled_and_negotiated) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step == 20 && rank == 500) submissions.front().name = "other.0";
    if (step == 21 && rank == 500) submissions.front().name = "gradient.0";
    // Its gradient of that step comes last, and the others bring what it has brought too soon.
    if (step == 20) submissions.push_back({.name = rank == 500 ? "gradient.0" : "other.0"});
    return submissions;
  };
  World world(program, 40);
  world.run(20 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_GT(world.cancelled(), 0);
  EXPECT_TRUE(world.departures().contains("it submits other.0"));
}

TEST(Simulation, the_plan_outlives_a_late_rank_and_all_go_on_when_it_comes) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step == 20 && rank == 999) submissions.front().after = 5 * kSecond;
    return submissions;
  };
  World world(program, 60);
  world.run(30 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_TRUE(world.departures().empty());
  EXPECT_GT(world.now(), 5 * kSecond);
  EXPECT_LT(world.now(), 6 * kSecond);
  EXPECT_EQ(world.plans_begun(), std::set<int64_t>{1});
  EXPECT_TRUE(world.stalls().empty());
}

TEST(Simulation, a_rank_that_never_comes_is_reported_with_what_it_is_waited_for) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step == 20 && rank == 7) submissions[3].after = 1000 * kSecond;
    return submissions;
  };
  World world(program, 40);
  world.run(185 * kSecond);  // nobody tells this rank 0 what waits in plans, so they are left after 120 s
  EXPECT_FALSE(world.is_finished());
  ASSERT_EQ(world.stalls().size(), 1u);
  EXPECT_THAT(world.stalls()[0], testing::HasSubstr("\n7: [gradient.3, gradient.4, gradient.5]"));
  EXPECT_THAT(world.stalls()[0], testing::Not(testing::HasSubstr("\n8: [")));
  world.run(2000 * kSecond);
  EXPECT_TRUE(world.is_finished());
}

}  // namespace
}  // namespace rueda::control::simulation_test
