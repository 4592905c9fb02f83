// What each step says of ranks and links, also where steps are taken together.
#include "timeline/step_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "timeline/words.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::step_rows_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

TEST(StepRows, are_weighted_by_their_steps_and_keep_the_largest_causes) {
  StepSummary one{.first = 8, .count = 3, .length = 10}, two{.first = 11, .count = 1, .length = 30};
  one.waiting_for = {{0, 8}, {1, 4}, {2, 3}, {3, 2}};
  two.waiting_for = {{4, 40}, {1, 4}};
  two.transfer_on = {{{0, 1}, 20}};
  const std::array<StepSummary, 2> rows = {one, two};
  const StepSummary both = together(rows);
  EXPECT_EQ(both.first, 8);
  EXPECT_EQ(both.count, 4);
  EXPECT_EQ(both.length, 15);
  EXPECT_THAT(both.waiting_for, ElementsAre(Pair(4, 10), Pair(0, 6), Pair(1, 4), Pair(2, 2.25)));
  EXPECT_THAT(both.transfer_on, ElementsAre(Pair(LinkEnds(0, 1), 5)));
}

TEST(StepRows, say_for_whom_and_on_which_link_most_of_the_time_was) {
  StepSummary step{.length = 20e6};
  step.shares[static_cast<size_t>(StepShare::kWaiting)] = 12e6;
  step.shares[static_cast<size_t>(StepShare::kTransfer)] = 8e6;
  EXPECT_EQ(step_text(step), "waiting 12 ms, transfer 8 ms");
  step.waiting_for = {{3, 11e6}, {1, 1e6}};
  step.transfer_on = {{{2, 0}, 7e6}};
  EXPECT_EQ(step_text(step),
            "waiting 12 ms, of it 11 ms for rank 3, transfer 8 ms, of it 7 ms from rank 2 to rank 0");
}

TEST_F(SummaryTest, each_step_says_for_which_ranks_the_others_waited) {
  JobPlan plan;
  plan.steps = 30;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = step == 7 && rank == 2 ? 70.0 : rank == 1 ? 16.0 : 10.0};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  const auto json = nlohmann::json::parse(as_json(summary));
  EXPECT_EQ(json["by_step"][6]["waiting_for"][0]["rank"], 1);
  EXPECT_NEAR(json["by_step"][6]["waiting_for"][0]["ns"].get<double>(), 4e6, 1e4) << "two of three waited";
  EXPECT_EQ(json["by_step"][7]["waiting_for"][0]["rank"], 2);
  EXPECT_NEAR(json["by_step"][7]["waiting_for"][0]["ns"].get<double>(), 38e6, 1e4) << "60 and 54 of three";
  EXPECT_TRUE(json["by_step"][7]["transfer_on"].empty()) << "no messages are known";
  EXPECT_THAT(as_html(summary), HasSubstr("waiting 38 ms, of it 38 ms for rank 2"));
  for (const StepSummary& step : summary.by_step) {
    double sum = 0;
    for (const auto& [rank, time] : step.waiting_for) sum += time;
    EXPECT_NEAR(sum, step.shares[static_cast<size_t>(StepShare::kWaiting)], 10);
  }
}

TEST_F(SummaryTest, steps_that_are_taken_together_still_say_it_in_bounded_memory) {
  JobPlan plan;
  plan.ranks = 8;
  plan.steps = 2'100;
  plan.step = [](Rank rank, int64_t step) { return StepPlan{.compute = step % 8 == rank ? 12.0 : 10.0}; };
  const Summary summary = summarize_files({write(plan)}).value();
  ASSERT_GT(summary.by_step.front().count, 1);
  EXPECT_THAT(summary.by_step.front().waiting_for, SizeIs(2)) << "the ranks of two steps";
  for (const StepSummary& step : summary.by_step) EXPECT_LE(step.waiting_for.size(), kKeptCauses);
}

}  // namespace
}  // namespace rueda::timeline::step_rows_test
