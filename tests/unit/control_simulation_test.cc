// What a thousand ranks do together: plans that are learned, that end, and that outlive a late rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
