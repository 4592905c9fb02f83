// What a thousand ranks do together: plans that are learned, that end, and that outlive a late rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "control_simulated_world.h"

namespace rueda::control::simulation_test {
namespace {

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

TEST(Simulation, leaders_of_hosts_spare_the_root_nearly_all_messages_and_change_nothing_else) {
  const Program program = [](Rank rank, int) { return training_step(rank); };
  World star(program, 20, 1000), tree(program, 20, 1000, {}, {}, 8);
  for (World* world : {&star, &tree}) {
    world->run(10 * kSecond);
    EXPECT_TRUE(world->is_finished());
    EXPECT_TRUE(world->have_all_plan());
    EXPECT_EQ(world->plans_begun(), std::set<int64_t>{1});
  }
  EXPECT_LT(tree.messages_at_root() * 20, star.messages_at_root());
  const int64_t messages = tree.messages();
  World longer(program, 40, 1000, {}, {}, 8);
  longer.run(10 * kSecond);
  EXPECT_EQ(longer.messages(), messages) << "a plan needs none";
}

// As a metric and a sparse gradient have them.
TEST(Simulation, a_hundred_ranks_whose_rows_change_in_every_step_say_no_more_word) {
  const Program program = [](Rank rank, int step) {
    Step calls = training_step(rank);
    calls.push_back({.name = "metric", .rows = (step * 7 + rank) % 5});
    calls.push_back({.name = "sparse", .waits = true, .rows = (step + rank) % 100});
    return calls;
  };
  World world(program, 60, 100);
  world.run_to_step(20, 100 * kSecond);
  const int64_t messages = world.messages();
  EXPECT_TRUE(world.have_all_plan());
  world.run(100 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_EQ(world.messages(), messages);
}

TEST(Simulation, a_rank_that_submits_something_else_ends_the_plan_in_good_order_everywhere) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step != 20) return submissions;
    // Ranks come to it at different places of the step, so that some are in the middle of a bucket.
    submissions.insert(submissions.begin() + rank % 7, {.name = "metric"});
    return submissions;
  };
  for (const Rank ranks_per_host : {0, 8}) {
    World world(program, 60, kRanks, {}, {}, ranks_per_host);
    world.run_to_step(15, kSecond);
    ASSERT_TRUE(world.have_all_plan());
    world.run(10 * kSecond);
    EXPECT_TRUE(world.is_finished());
    EXPECT_TRUE(world.departures().contains("it submits metric"));
    EXPECT_EQ(world.plans_begun(), std::set<int64_t>{2}) << "it is learned again";
    EXPECT_TRUE(world.have_all_plan());
  }
}

TEST(Simulation, a_bucket_that_not_all_ranks_have_started_is_cancelled_and_negotiated) {
  const Program program = [](Rank rank, int step) {
    Step submissions = training_step(rank);
    if (step == 20 && rank == kRanks / 2) submissions.front().name = "other.0";
    if (step == 21 && rank == kRanks / 2) submissions.front().name = "gradient.0";
    // Its gradient of that step comes last, and the others bring what it has brought too soon.
    if (step == 20) submissions.push_back({.name = rank == kRanks / 2 ? "gradient.0" : "other.0"});
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
    if (step == 20 && rank == kRanks - 1) submissions.front().after = 5 * kSecond;
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
  const std::string star = world.stalls()[0];
  world.run(2000 * kSecond);
  EXPECT_TRUE(world.is_finished());
  World tree(program, 40, kRanks, {}, {}, 8);
  tree.run(185 * kSecond);
  ASSERT_EQ(tree.stalls().size(), 1u);
  EXPECT_EQ(tree.stalls()[0], star);
}

// ---- process sets ----

// A pipeline of several stages with four copies of the model: rank = 4 * stage + copy. Each stage exchanges
// with the one before and behind it in the same copy, under numbers, and then adds its gradients with the
// other copies. Set 1 + 4 * stage + copy is a pair of stages, and set 2000 + stage are the copies of a stage.
SetMembers pipeline(int stages) {
  SetMembers sets;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Rank>& copies = sets[2000 + stage];
    for (int copy = 0; copy < 4; ++copy) {
      const Rank rank = 4 * stage + copy;
      copies.push_back(rank);
      if (stage + 1 < stages) sets[1 + rank] = {rank, rank + 4};
    }
  }
  return sets;
}

Step stage_step(Rank rank, int step, int stages) {
  constexpr int kParts = 4;  // of a batch
  const int stage = rank / 4;
  Step program;
  const auto exchange = [&](int32_t set, int part, bool is_back) {
    program.push_back({.name = "p.",
                       .after = 10 * kMicrosecond,
                       .set = set,
                       .waits = true,
                       .number = 1 + 2 * kParts * step + (is_back ? kParts : 0) + part});
  };
  for (int part = 0; part < kParts; ++part) {
    if (stage > 0) exchange(1 + rank - 4, part, false);
    if (stage + 1 < stages) exchange(1 + rank, part, false);
  }
  for (int part = 0; part < kParts; ++part) {
    if (stage + 1 < stages) exchange(1 + rank, part, true);
    if (stage > 0) exchange(1 + rank - 4, part, true);
  }
  for (const char* gradient : {"g1", "g2", "g3"})
    program.push_back({.name = gradient, .after = kMicrosecond * (1 + rank % 3), .set = 2000 + stage});
  return program;
}

TEST(SimulationOfSets, a_pipeline_of_many_stages_learns_a_plan_and_says_no_more_word) {
  constexpr int kStages = 12;
  World world([](Rank rank, int step) { return stage_step(rank, step, kStages); }, 60, 4 * kStages,
              pipeline(kStages));
  world.run_to_step(30, 20 * kSecond);
  ASSERT_TRUE(world.have_all_plan());
  const int64_t messages = world.messages();
  world.run(60 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_EQ(world.messages(), messages);
}

TEST(SimulationOfSets, the_plan_of_a_pipeline_ends_in_good_order_on_all_stages) {
  constexpr int kStages = RUEDA_UNDER_ASAN ? 6 : 12;
  const Program program = [](Rank rank, int step) {
    Step submissions = stage_step(rank, step, kStages);
    // The metric of one stage; the others are at different places of their steps.
    if (step >= 40 && step % 10 == 0 && rank / 4 == 5)
      submissions.insert(submissions.begin() + 9, {.name = "metric", .set = 2005, .waits = true});
    return submissions;
  };
  World world(program, 90, 4 * kStages, pipeline(kStages));
  world.run(90 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_GT(world.cancelled(), 0);
  EXPECT_TRUE(world.departures().contains("it submits metric"));
}

// A program of random calls in random sets. Ranks submit their calls in the order of the program, wait now
// and then, and compute for random times. Some steps are others.
class RandomSets {
 public:
  explicit RandomSets(uint64_t seed) : seed_(seed), random_(seed) {
    ranks_ = 2 + static_cast<Rank>(random_() % 6);
    for (int32_t set = 1; set <= 1 + static_cast<int32_t>(random_() % 4); ++set) {
      std::vector<Rank> members;
      for (Rank rank = 0; rank < ranks_; ++rank)
        if (random_() % 2 == 0) members.push_back(rank);
      if (members.empty()) members.push_back(static_cast<Rank>(random_() % static_cast<uint64_t>(ranks_)));
      sets_[set] = members;
    }
    for (size_t i = 2 + random_() % 8; i > 0; --i) calls_.push_back(any_call());
  }

  [[nodiscard]] Rank ranks() const { return ranks_; }
  [[nodiscard]] const SetMembers& sets() const { return sets_; }
  Step operator()(Rank rank, int step) {
    std::mt19937_64 random(seed_ + static_cast<uint64_t>(step) * 1000);
    std::mt19937_64 own(seed_ + static_cast<uint64_t>(step) * 1000 + 1 + static_cast<uint64_t>(rank));
    std::vector<Submission> calls = calls_;
    for (Submission& call : calls)
      if (call.rows > 0) call.rows = static_cast<int64_t>(own() % 9);
    const bool is_other = step % 40 >= 33 && random() % 2 == 0;
    if (is_other && random() % 2 == 0)
      calls.erase(calls.begin() + static_cast<long>(random() % calls.size()));
    if (is_other && random() % 2 == 0) {
      Submission more = calls_[random() % calls_.size()];
      more.name = "other";
      more.waits = random() % 2 == 0;
      calls.insert(calls.begin() + static_cast<long>(random() % (calls.size() + 1)), more);
    }
    Step mine;
    for (Submission& call : calls) {
      if (!is_member(sets_, call.set, rank)) continue;
      call.after = static_cast<Nanos>(own() % 50) * kMicrosecond;
      if (own() % 400 == 0) call.after += 3 * kMillisecond;
      // Only in the other steps, because a plan must fit what ranks wait for.
      if (is_other && own() % 4 == 0) call.waits = true;
      mine.push_back(call);
    }
    return mine;
  }

 private:
  Submission any_call() {
    Submission call{.name = "t" + std::to_string(calls_.size()), .after = 0, .waits = random_() % 3 == 0};
    call.set = static_cast<int32_t>(random_() % (sets_.size() + 1));
    if (random_() % 4 == 0) call.rows = 1;  // any number, in each step
    return call;
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  Rank ranks_ = 0;
  SetMembers sets_;
  std::vector<Submission> calls_;
};

// Tries other buckets as often as it can.
Tuner::Options restless() {
  return {
      .is_on = true,
      .ways = {.costs = {.call_us = [](int64_t bytes) { return 100 + 1e-3 * static_cast<double>(bytes); }}},
      .settle = 0,
      .budget = 1e9,
      .trial = {.passes = 1, .time = 0, .cut = 1e9}};
}

TEST(Simulation, a_plan_gets_other_buckets_between_two_passes_and_no_rank_departs) {
  const Program program = [](Rank rank, int) {
    Step step = training_step(rank);
    for (Submission& one : step) one.after = (10 + rank % 5) * kMicrosecond;  // so some may share a bucket
    return step;
  };
  World world(program, 300, 100, {}, restless());
  world.run(100 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_GT(*world.plans_begun().begin(), 5);
  EXPECT_LE(world.plans_begun().size(), 2u) << "the last one may be on its way";
  EXPECT_THAT(world.departures(), testing::IsEmpty());
  EXPECT_LT(world.now(), 300 * 10 * kMillisecond);
}

// The loss is submitted long after the gradients, and what it sends itself takes no time.
TEST(Simulation, a_step_that_ends_with_a_loss_and_a_barrier_is_tuned_too) {
  const Program program = [](Rank rank, int) {
    Step step = training_step(rank);
    for (Submission& one : step) one.after = 10 * kMicrosecond;
    step.back().waits = true;
    step.push_back({.name = "loss", .after = 50 * kMillisecond, .waits = true, .elements = 1});
    step.push_back({.name = "barrier", .waits = true, .elements = 0});
    return step;
  };
  World world(program, 300, 100, {}, restless());
  world.run(100 * kSecond);
  EXPECT_TRUE(world.is_finished());
  EXPECT_GT(*world.plans_begun().begin(), 3);
}

TEST(SimulationOfSets, random_programs_neither_stop_nor_disagree) {
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const uint64_t programs = wanted == nullptr ? 100 : std::strtoull(wanted, nullptr, 10);
  const uint64_t chosen = std::random_device{}() % 1'000'000;
  int64_t cancelled = 0, plans = 0;
  for (uint64_t i = 0; i < programs && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = i % 2 == 0 ? i : chosen + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSets program(seed);
    World world([&](Rank rank, int step) { return program(rank, step); }, 200, program.ranks(),
                program.sets(), i / 2 % 2 == 0 ? Tuner::Options{} : restless(),
                static_cast<Rank>(i / 4 % 4));  // 0: no tree
    world.run(100 * kSecond);
    EXPECT_TRUE(world.is_finished());
    cancelled += world.cancelled();
    plans += *world.plans_begun().rbegin();
  }
  std::cout << "[ programs ] " << programs << ": " << plans << " plans, " << cancelled
            << " buckets cancelled\n";
  EXPECT_GT(plans, static_cast<int64_t>(programs));
}

}  // namespace
}  // namespace rueda::control::simulation_test
