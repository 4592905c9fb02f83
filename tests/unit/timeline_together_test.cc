// What all ranks do at once, so that none waits for another: jobs in which they compute, sleep or wait for
// data that nobody measures, far longer in some steps than in others; and jobs in which they do not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "timeline/lateness.h"
#include "timeline/summary.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::together_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSaid = "Compute takes";

double noise(Rank rank, int64_t step) { return static_cast<double>((step * 7 + rank * 3) % 5) / 4; }

// One of ten steps, at no regular distance, the same ones on all ranks.
bool by_chance(int64_t step) {
  return (static_cast<uint64_t>(step * 4) * 0x9E3779B97F4A7C15U >> 33) % 10 == 0;
}

class TogetherTest : public SummaryTest {
 protected:
  Summary of(const JobPlan& plan) {
    return summarize_files({write(plan, fmt::format("{}.json", ++jobs_))}).value();
  }
  static JobPlan job(std::function<double(Rank, int64_t)> compute, int64_t steps = 149) {
    JobPlan plan;
    plan.ranks = 2;
    plan.steps = steps;
    plan.step = [compute](Rank rank, int64_t step) {
      return StepPlan{.compute = compute(rank, step), .transfer = 0.2};
    };
    return plan;
  }
  int jobs_ = 0;
};

TEST_F(TogetherTest, data_late_on_all_ranks_in_every_tenth_step_is_the_first_advice) {
  JobPlan plan =
      job([](Rank rank, int64_t step) { return 2 + noise(rank, step) + (step % 10 == 9 ? 200 : 0); });
  const Summary summary = of(plan);
  ASSERT_FALSE(summary.advice.empty());
  EXPECT_THAT(
      summary.advice.front().text,
      AllOf(HasSubstr("Compute takes 98 % of the time, most of it in 14 of 149 steps (every 10th, from "
                      "step 9): all ranks compute 200 ms longer there than usual, or sleep, or wait for "
                      "data (no rank measures its input, which hvd.timed_input does)."),
            Not(HasSubstr("for rank"))));
  EXPECT_NEAR(summary.advice.front().gain, 0.86, 0.02);
  for (const RankSummary& rank : summary.by_rank) EXPECT_EQ(rank.why, Lateness::kNone);
  const auto json = nlohmann::json::parse(as_json(summary))["all_compute_longer"];
  EXPECT_EQ(json["steps"], 14);
  EXPECT_EQ(json["of"], 149);
  EXPECT_EQ(json["every"], 10);
  for (const std::string& shown : {as_text(summary), as_html(summary)})
    EXPECT_THAT(shown, HasSubstr("in 14 of 149 steps (every 10th, from step 9)"));
  plan.ranks = 1;
  EXPECT_THAT(as_text(of(plan)),
              HasSubstr("the rank computes 200 ms longer there than usual, or sleeps, or waits"));
}

TEST_F(TogetherTest, where_input_is_measured_the_rest_is_computing) {
  JobPlan plan = job([](Rank, int64_t) { return 0.0; });
  plan.step = [](Rank, int64_t step) {
    return StepPlan{.input = 1, .compute = step % 50 == 49 ? 400.0 : 10.0, .transfer = 0.2};
  };
  plan.steps = 240;
  const Summary summary = of(plan);
  EXPECT_THAT(
      summary.advice.front().text,
      HasSubstr("39 % of it in 4 of 240 steps (every 50th, from step 49): all ranks compute 390 ms longer "
                "there than usual, or sleep. Look there for logging, an evaluation, a checkpoint"));
  plan.step = [](Rank, int64_t step) {
    return StepPlan{.input = step % 10 == 9 ? 200.0 : 0.2, .compute = 2, .transfer = 0.2};
  };
  const std::string input = as_text(of(plan));
  EXPECT_THAT(input, AllOf(HasSubstr("of its time for input"), Not(HasSubstr(kSaid))));
}

// One rank of 20 is never late itself.
TEST_F(TogetherTest, one_rank_of_many_may_differ) {
  JobPlan plan = job([](Rank rank, int64_t step) { return rank != 7 && step % 10 == 9 ? 60.0 : 10.0; });
  plan.ranks = 20;
  EXPECT_THAT(as_text(of(plan)),
              HasSubstr("in 14 of 149 steps (every 10th, from step 9): all ranks compute 50 ms"));
}

// More steps than are kept.
TEST_F(TogetherTest, long_jobs_are_judged_as_short_ones_are) {
  Summary summary;
  summary.steps = 50'000;
  summary.shares[static_cast<size_t>(StepShare::kCompute)] = 15e6;
  StepSamples together;
  for (int64_t step = 0; step < summary.steps; ++step)
    together.add({.step = step, .compute = step % 10 == 9 ? 60e6F : 10e6F});
  judge_together(summary, together);
  EXPECT_NEAR(static_cast<double>(summary.all_longer.count), 5'000, 1'000);
  ASSERT_EQ(summary.all_longer.every, 10);
  EXPECT_EQ(summary.all_longer.first.front(), 9);
}

TEST_F(TogetherTest, irregular_steps_are_told_only_if_they_are_most_of_computing) {
  EXPECT_THAT(as_text(of(job([](Rank, int64_t step) { return by_chance(step) ? 200.0 : 2.0; }))),
              HasSubstr("all ranks compute 198 ms longer there than usual"));
  // As ranks on busy cores do: longer by a few turns of other programs.
  EXPECT_THAT(as_text(of(job([](Rank rank, int64_t step) {
                return noise(rank, step) + (by_chance(step) ? 8.0 : 2.0);
              }))),
              Not(HasSubstr(kSaid)));
}

TEST_F(TogetherTest, uniform_jobs_and_rare_events_are_not_told) {
  const auto says = [&](std::function<double(Rank, int64_t)> compute) {
    return as_text(of(job(std::move(compute)))).find(kSaid) != std::string::npos;
  };
  EXPECT_FALSE(says([](Rank rank, int64_t step) { return 100 + noise(rank, step); }));
  EXPECT_FALSE(says([](Rank, int64_t step) { return step == 75 ? 3'000.0 : 2.0; })) << "a checkpoint";
  EXPECT_FALSE(says([](Rank, int64_t step) { return step < 3 ? 900.0 : 2.0; })) << "compilation";
  EXPECT_FALSE(says([](Rank, int64_t step) { return step % 2 == 0 ? 20.0 : 2.0; }))
      << "two kinds of steps in turn";
  EXPECT_FALSE(says([](Rank, int64_t step) { return step % 10 == 9 ? 22.0 : 10.0; }))
      << "about twice as long";
}

// One late rank, and ranks late in turn, have their own sentences.
TEST_F(TogetherTest, ranks_that_are_not_late_at_once_are_named_one_by_one) {
  const std::string one =
      as_text(of(job([](Rank rank, int64_t step) { return rank == 1 && step % 10 == 9 ? 200.0 : 2.0; })));
  EXPECT_THAT(one, AllOf(HasSubstr("for rank 1 (host a), most of it in"), Not(HasSubstr(kSaid))));
  const std::string turn =
      as_text(of(job([](Rank rank, int64_t step) { return step % 20 == 9 + 10 * rank ? 200.0 : 2.0; })));
  EXPECT_THAT(
      turn, AllOf(HasSubstr("for rank 0 (host a)"), HasSubstr("for rank 1 (host a)"), Not(HasSubstr(kSaid))));
}

}  // namespace
}  // namespace rueda::timeline::together_test
