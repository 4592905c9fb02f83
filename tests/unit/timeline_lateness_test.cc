// Which rank is called late, why, and when: jobs with a known cause, and healthy ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "timeline/summary.h"
#include "timeline/words.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::lateness_test {
namespace {

using testing::HasSubstr;

// Each rank is late in every second step, by a part of a step: the jitter of two ranks that do the same.
TEST_F(SummaryTest, the_jitter_of_healthy_ranks_is_no_rank_s_fault) {
  const auto advice_of = [&](double jitter, const std::string& name) {
    JobPlan plan;
    plan.ranks = 2;
    plan.steps = 100;
    plan.step = [jitter](Rank rank, int64_t step) {
      return StepPlan{.compute = 100 + (step % 2 == rank ? jitter : 0.0), .transfer = 0.1};
    };
    return summarize_files({write(plan, name)}).value().advice;
  };
  EXPECT_TRUE(advice_of(2, "2.json").empty());
  EXPECT_TRUE(advice_of(8, "8.json").empty()) << "3.7 % in turn";
  const std::vector<Advice> much = advice_of(30, "30.json");
  ASSERT_EQ(much.size(), 1u) << "one for all ranks";
  EXPECT_THAT(much[0].text, HasSubstr("Ranks wait 15 ms of each step for one another in turn"));
  EXPECT_NEAR(much[0].gain, 15.0 / 130, 0.01);
}

TEST_F(SummaryTest, a_rank_that_is_late_in_a_part_of_the_job_is_named_with_its_steps) {
  JobPlan plan;
  plan.steps = 200;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 1 && step >= 40 && step < 80 ? 22.0 : 10.0};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  EXPECT_THAT(summary.advice[1].text, HasSubstr("for rank 1 (host a): it computes"));
  EXPECT_THAT(summary.advice[1].text, HasSubstr("Nine tenths of that were in steps 40 to 75 of 200."));
  EXPECT_EQ(nlohmann::json::parse(as_json(summary))["by_rank"][1]["late_in_steps"][1], 75);
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 22.0 : 10.0}; };
  EXPECT_EQ(summarize_files({write(plan, "all.json")}).value().by_rank[1].late_in.count(), 0);
}

// True in one of ten steps, at no regular distance; for each seed in other steps.
bool by_chance(int64_t step, int64_t seed) {
  uint64_t mixed = static_cast<uint64_t>(step * 4 + seed) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9U;
  return (mixed >> 33) % 10 == 0;
}

// Rank 2 computes longer in all steps, and ranks 0 and 1 do in one of ten, by chance.
TEST_F(SummaryTest, ranks_late_in_turn_are_told_apart_from_one_with_a_cause) {
  JobPlan plan;
  plan.steps = 120;
  plan.step = [](Rank rank, int64_t step) {
    const bool is_turn = rank < 2 && by_chance(step, rank);
    return StepPlan{.compute = rank == 2 ? 130.0 : is_turn ? 300.0 : 100.0, .transfer = 0.1};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  ASSERT_EQ(summary.advice.size(), 2u);
  EXPECT_THAT(summary.advice[0].text, HasSubstr("Apart from the ranks that are named with a cause, ranks"));
  EXPECT_THAT(summary.advice[1].text, HasSubstr("for rank 2 (host a): it computes"));
}

// Three ranks on two cores: each is late in its turn, and one of them a little more often. Its mean is
// longer, but it decides no more steps than the others.
TEST_F(SummaryTest, a_rank_is_slow_only_if_it_decides_most_steps) {
  JobPlan plan;
  plan.steps = 99;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.input = step % 3 == rank ? (rank == 2 ? 12.0 : 8.0) : 5.0, .transfer = 0.1};
  };
  const Summary equal = summarize_files({write(plan)}).value();
  EXPECT_GT(equal.by_rank[2].delay, equal.by_rank[2].cost / 4);
  for (const RankSummary& rank : equal.by_rank) EXPECT_EQ(rank.why, Lateness::kUnknown);
  // Two slow ranks decide half of the steps each.
  plan.ranks = 5;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank < 3 ? 10.0 : 20.0 + (step % 2 == rank % 2 ? 1.0 : 0.0)};
  };
  const Summary two = summarize_files({write(plan, "two.json")}).value();
  EXPECT_EQ(two.by_rank[3].why, Lateness::kCompute);
  EXPECT_EQ(two.by_rank[4].why, Lateness::kCompute);
}

TEST_F(SummaryTest, a_few_steps_do_not_tell_whether_a_rank_is_slow) {
  JobPlan plan;
  plan.steps = 9;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  EXPECT_THAT(
      as_text(summarize_files({write(plan)}).value()),
      HasSubstr("most of all for rank 1 (host a). 9 steps are too few to tell whether a rank is slow"));
}

TEST_F(SummaryTest, without_measured_input_a_late_data_loader_is_not_ruled_out) {
  JobPlan plan;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  EXPECT_THAT(summarize_files({write(plan)}).value().advice.front().text,
              HasSubstr("or sleeps, or waits for its data loader: no rank measures its input"));
  plan.step = [](Rank rank, int64_t) { return StepPlan{.input = 1, .compute = rank == 1 ? 18.0 : 10.0}; };
  EXPECT_THAT(summarize_files({write(plan, "measured.json")}).value().advice.front().text,
              HasSubstr("or sleeps. Look at what else"));
}

TEST_F(SummaryTest, a_few_waits_that_are_shorter_than_a_step_are_no_event) {
  JobPlan plan;
  plan.ranks = 2;
  plan.steps = 100;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 1 && step % 30 == 7 ? 180.0 : 100.0, .transfer = 0.1};
  };
  const auto summary = summarize_files({write(plan)});
  EXPECT_NE(summary.value().by_rank[1].why, Lateness::kRarely);
  for (const Advice& one : summary.value().advice) EXPECT_THAT(one.text, Not(HasSubstr("alone")));
}

// Six evaluations of one rank beside waits by chance that are longer than one of the short steps.
TEST_F(SummaryTest, long_waits_are_found_among_many_short_ones) {
  JobPlan plan;
  plan.steps = 300;
  plan.step = [](Rank rank, int64_t step) {
    if (rank == 1 && step % 50 == 49) return StepPlan{.compute = 1'000, .transfer = 0.1};
    return StepPlan{.compute = rank == 1 && step % 14 == 3 ? 35.0 : 10.0, .transfer = 0.1};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  EXPECT_EQ(summary.by_rank[1].why, Lateness::kRarely);
  EXPECT_THAT(as_text(summary), HasSubstr("in steps 49, 99, 149, 199, 249 and 299 alone"));
}

// The step around has some noise on all ranks, as two ranks on two cores have it.
TEST_F(SummaryTest, input_that_is_late_in_every_tenth_step_is_the_cause_in_text) {
  JobPlan plan;
  plan.ranks = 2;
  plan.steps = 100;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.input = rank == 1 && step % 10 == 9 ? 200.0 : 0.2,
                    .compute = 40.0 + static_cast<double>((step * 7 + rank * 3) % 5)};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  EXPECT_EQ(summary.by_rank[1].why, Lateness::kInputAtTimes);
  EXPECT_EQ(summary.by_rank[1].at_times.count, 10);
  EXPECT_THAT(summary.advice.front().text,
              HasSubstr("for rank 1 (host a), most of it in 10 of 100 steps (every 10th, from step 9): it "
                        "waits 200 ms longer for its input there than it usually does"));
  const std::string text = as_text(summary);
  EXPECT_THAT(text, HasSubstr("input at times"));
  EXPECT_THAT(text, Not(HasSubstr("none of these computes, or waits for its input, longer")));
  const auto rank = nlohmann::json::parse(as_json(summary))["by_rank"][1];
  EXPECT_EQ(rank["why"], "input at times");
  EXPECT_EQ(rank["late_at_times"]["every"], 10);
}

TEST_F(SummaryTest, each_rank_whose_input_is_late_at_times_is_named) {
  JobPlan plan;
  plan.steps = 120;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.input = step % 8 == 2 * rank ? 100.0 : 1.0, .compute = 40};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  for (const RankSummary& rank : summary.by_rank) EXPECT_EQ(rank.why, Lateness::kInputAtTimes);
}

TEST_F(SummaryTest, ranks_that_compute_longer_at_times_are_named_unless_it_is_chance) {
  JobPlan plan;
  plan.ranks = 2;
  plan.steps = 100;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 0 && step % 10 == 0 ? 140.0 : 40.0};
  };
  const Summary one = summarize_files({write(plan)}).value();
  EXPECT_EQ(one.by_rank[0].why, Lateness::kComputeAtTimes);
  EXPECT_THAT(one.advice.front().text,
              HasSubstr("it computes 100 ms longer there than it usually does, or sleeps"));
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = step % 10 == 5 * rank ? (rank == 0 ? 240.0 : 100.0) : 40.0};
  };
  const Summary both = summarize_files({write(plan, "both.json")}).value();
  for (const RankSummary& rank : both.by_rank) EXPECT_EQ(rank.why, Lateness::kComputeAtTimes);
  EXPECT_THAT(both.advice[0].text,
              HasSubstr("for rank 0 (host a), most of it in 10 of 100 steps (every 10th, "
                        "from step 0): it computes 200 ms longer"));
  EXPECT_THAT(both.advice[1].text,
              HasSubstr("for rank 1 (host a), most of it in 10 of 100 steps (every 10th, "
                        "from step 5): it computes 60 ms longer"));
  plan.step = [](Rank rank, int64_t step) {
    const bool is_late = rank == 0 ? step % 10 == 0 : by_chance(step, rank);
    return StepPlan{.compute = is_late ? (rank == 0 ? 240.0 : 70.0) : 40.0};
  };
  EXPECT_EQ(summarize_files({write(plan, "beside.json")}).value().by_rank[1].why, Lateness::kNone)
      << "jitter beside a rank with a cause";
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = by_chance(step, rank) ? 140.0 : 40.0};
  };
  const Summary chance = summarize_files({write(plan, "chance.json")}).value();
  for (const RankSummary& rank : chance.by_rank) EXPECT_EQ(rank.why, Lateness::kUnknown);
}

// Ranks 1 and 3 of five evaluate something, at no regular distance; a little of jitter is on all.
TEST_F(SummaryTest, all_ranks_that_are_late_at_times_are_named_and_no_others) {
  JobPlan plan;
  plan.ranks = 5;
  plan.steps = 150;
  plan.step = [](Rank rank, int64_t step) {
    const double jitter = step % 5 == rank ? 6.0 : 0.0;
    const bool is_late = rank % 2 == 1 && by_chance(step, rank);
    return StepPlan{.compute = 40.0 + jitter + (is_late ? (rank == 1 ? 150.0 : 80.0) : 0.0)};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  ASSERT_GE(summary.advice.size(), 2u);
  EXPECT_THAT(summary.advice[0].text, HasSubstr("for rank 1 (host a), most of it in"));
  EXPECT_THAT(summary.advice[1].text, HasSubstr("for rank 3 (host a), most of it in"));
  for (const RankSummary& rank : summary.by_rank) {
    const bool is_late = rank.rank % 2 == 1;
    EXPECT_EQ(rank.why, is_late ? Lateness::kComputeAtTimes : Lateness::kNone) << rank.rank;
    EXPECT_EQ(lateness_text(summary, rank), is_late ? "computes at times" : "") << rank.rank;
  }
}

// Of a program that marks no steps, a second holds some twenty calls.
TEST_F(SummaryTest, a_rank_that_is_late_to_some_calls_is_told_apart_without_steps_too) {
  JobPlan plan;
  plan.marks_steps = false;
  plan.calls = 1;
  plan.steps = 200;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 1 && step % 10 == 9 ? 240.0 : 40.0 + static_cast<double>(step % 3)};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  EXPECT_FALSE(summary.has_steps);
  EXPECT_EQ(summary.by_rank[1].why, Lateness::kComputeAtTimes);
  EXPECT_THAT(summary.advice.front().text,
              HasSubstr("for rank 1 (host a), most of it in 20 of 200 calls (every 10th, from call 9): it "
                        "computes 199 ms longer there than it usually does"));
  EXPECT_EQ(nlohmann::json::parse(as_json(summary))["by_rank"][1]["late_at_times"]["calls"], 20);
  // Always late, to single calls and to the first of many at once.
  for (const int32_t calls : {1, 20}) {
    plan.calls = calls;
    plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 70.0 : 40.0}; };
    const Summary always = summarize_files({write(plan, std::to_string(calls) + ".json")}).value();
    EXPECT_EQ(always.by_rank[1].why, Lateness::kCompute) << calls;
  }
  plan.calls = 1;
  plan.step = [](Rank rank, int64_t step) {
    return StepPlan{.input = rank == 1 && by_chance(step, 0) ? 200.0 : 2.0, .compute = 40.0};
  };
  EXPECT_EQ(summarize_files({write(plan, "input.json")}).value().by_rank[1].why, Lateness::kInputAtTimes);
}

// A rank behind a slow link gets its results later than the others, so it comes later to the next step.
TEST_F(SummaryTest, a_rank_that_is_late_because_of_its_transfers_is_told_apart) {
  JobPlan plan;
  plan.calls = 1;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.transfer = rank == 1 ? 9.0 : 5.0}; };
  Summary summary = summarize_files({write(plan)}).value();
  const RankSummary& late = summary.by_rank[1];
  EXPECT_EQ(late.why, Lateness::kTransfer);
  EXPECT_NEAR(late.delay / 1e6, 4, 0.2);
  EXPECT_EQ(nlohmann::json::parse(as_json(summary))["by_rank"][1]["why"], "transfer");
  EXPECT_THAT(as_text(summary),
              HasSubstr("its transfers last 4 ms longer than those of the median rank, so it"));
  EXPECT_THAT(as_text(summary), Not(HasSubstr("explains it")));
  summary.links = {{.rank = 0, .out_gbps = 0.01, .in_gbps = 1, .is_slow_out = true}, {.rank = 1}};
  for (const std::string& shown : {as_text(summary), as_html(summary)})
    EXPECT_THAT(shown, HasSubstr("Here the slow link of rank 0 (host a) explains it."));
}

TEST_F(SummaryTest, one_long_wait_is_told_apart_from_a_slow_rank) {
  JobPlan once, always;
  once.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 1 && step == 7 ? 5'000.0 : 10.0};
  };
  always.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 260.0 : 10.0}; };
  const std::string event = as_text(summarize_files({write(once, "once.json")}).value());
  EXPECT_THAT(event, HasSubstr("The other ranks waited 4.99 s for rank 1 (host a) in step 7 alone"));
  EXPECT_THAT(event, Not(HasSubstr("longer than the median rank")));
  EXPECT_THAT(event, HasSubstr("in few steps"));
  JobPlan thrice;
  thrice.steps = 60;
  thrice.step = [](Rank rank, int64_t step) {
    return StepPlan{.compute = rank == 1 && (step == 7 || step == 30 || step == 44) ? 500.0 : 10.0};
  };
  EXPECT_THAT(
      as_text(summarize_files({write(thrice, "thrice.json")}).value()),
      HasSubstr("for rank 1 (host a) in steps 7, 30 and 44 alone, and 0 ns in all others together: look"));
  const std::string slow = as_text(summarize_files({write(always, "always.json")}).value());
  EXPECT_THAT(slow, HasSubstr("for rank 1 (host a): it computes 250 ms longer than the median rank"));
  EXPECT_THAT(slow, Not(HasSubstr("alone")));
}

TEST_F(SummaryTest, one_long_wait_of_a_rank_hides_no_slow_one) {
  JobPlan plan;
  plan.steps = 100;
  plan.step = [](Rank rank, int64_t step) {
    if (rank == 1 && step == 7) return StepPlan{.input = 8'000};
    return StepPlan{.compute = rank == 2 ? 30.0 : 10.0};
  };
  const Summary summary = summarize_files({write(plan)}).value();
  EXPECT_EQ(summary.by_rank[1].why, Lateness::kRarely);
  EXPECT_EQ(summary.by_rank[2].why, Lateness::kCompute);
  EXPECT_NEAR(summary.by_rank[2].delay, 20e6, 1e6);
  EXPECT_THAT(as_text(summary),
              HasSubstr("in step 7 alone, and 0 ns in all others together: it waited for its input"));
}

}  // namespace
}  // namespace rueda::timeline::lateness_test
