// What `rueda timeline diff` says of two jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "timeline/summary.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::diff_test {
namespace {

using testing::HasSubstr;

TEST_F(SummaryTest, a_difference_is_put_down_to_a_share_that_changed_the_same_way) {
  Summary before, after;
  before.steps = after.steps = 5;
  before.step_length = 100e6;
  after.step_length = 90e6;
  after.shares[0] = 30e6;   // more
  before.shares[1] = 20e6;  // less
  EXPECT_THAT(diff_text(before, after), HasSubstr("less than before, most of all because of " +
                                                  std::string(name_of(static_cast<StepShare>(1))) + " (-"));
}

TEST_F(SummaryTest, a_diff_says_what_changed_most) {
  JobPlan slow;
  slow.step = [](Rank, int64_t) { return StepPlan{.transfer = 9}; };
  const auto before = summarize_files({write({}, "a.json")}),
             after = summarize_files({write(slow, "b.json")});
  ASSERT_TRUE(before.is_ok() && after.is_ok());
  EXPECT_THAT(diff_text(before.value(), after.value()),
              HasSubstr("A step takes 4 ms more than before, most of all because of transfer (+4 ms)."));
}

TEST_F(SummaryTest, steps_that_differ_by_less_than_a_hundredth_take_as_long_as_before) {
  JobPlan slower;
  slower.step = [](Rank, int64_t) { return StepPlan{.compute = 10.1}; };
  const auto before = summarize_files({write({}, "a.json")}),
             after = summarize_files({write(slower, "b.json")});
  ASSERT_TRUE(before.is_ok() && after.is_ok());
  for (const Summary& other : {before.value(), after.value()})
    EXPECT_THAT(diff_text(before.value(), other),
                HasSubstr("A step takes as long as before: the difference is less than 1 % of it.\n"));
}

TEST_F(SummaryTest, a_diff_names_the_ranks_that_changed_for_people_and_programs) {
  JobPlan slow;
  slow.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 2 ? 30.0 : 10.0}; };
  const auto before = summarize_files({write({}, "a.json")}),
             after = summarize_files({write(slow, "b.json")});
  ASSERT_TRUE(before.is_ok() && after.is_ok());
  const std::string text = diff_text(before.value(), after.value());
  EXPECT_THAT(text, HasSubstr("rank 2 on a: +20 ms of its own in a step, most of all compute\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank 1 on")));
  const auto json = nlohmann::json::parse(diff_json(before.value(), after.value()));
  EXPECT_NEAR(json["after"]["step_ns"].get<double>() - json["before"]["step_ns"].get<double>(), 20e6, 1e5);
  EXPECT_EQ(json["by_rank"][0]["rank"], 2);
  EXPECT_NEAR(json["by_rank"][0]["own_change_ns"].get<double>(), 20e6, 1e5);
  EXPECT_NEAR(json["by_rank"][0]["cost_after_ns"].get<double>(), 20e6, 1e5);
}

TEST_F(SummaryTest, a_diff_says_what_makes_two_jobs_hard_to_compare) {
  JobPlan few, many;
  few.ranks = 1;
  many.ranks = 4;
  many.steps = 100;
  many.calls = 3;
  many.offset = 3'600 * kSecond;
  const auto before = summarize_files({write(few, "few.json")}),
             after = summarize_files({write(many, "many.json")});
  ASSERT_TRUE(before.is_ok() && after.is_ok());
  const std::string text = diff_text(before.value(), after.value());
  EXPECT_THAT(text, HasSubstr("Note: 1 rank before and 4 ranks after: an average rank is compared"));
  EXPECT_THAT(text, HasSubstr("Note: The ranks were on 1 host before and on 2 hosts after."));
  EXPECT_THAT(text, HasSubstr("Note: The averages are of 20 steps before and of 100 steps after"));
  EXPECT_THAT(text, HasSubstr("Note: A step transfers 2 MiB for each rank before and 3 MiB after"));
  EXPECT_THAT(text, Not(HasSubstr("Ranks that changed most")));
  const auto json = nlohmann::json::parse(diff_json(before.value(), after.value()));
  EXPECT_EQ(json["notes"].size(), 4u);
  EXPECT_TRUE(json["by_rank"].empty());
  const std::string same = diff_text(before.value(), before.value());
  EXPECT_THAT(same, Not(HasSubstr("Note: ")));
  EXPECT_TRUE(nlohmann::json::parse(diff_json(before.value(), before.value()))["notes"].empty());
}

TEST_F(SummaryTest, a_diff_says_that_no_tensor_is_the_same) {
  auto before = summarize_files({write({}, "a.json")}), after = summarize_files({write({}, "b.json")});
  ASSERT_TRUE(before.is_ok() && after.is_ok());
  Summary other = after.value();
  for (TransferSummary& one : other.by_transfer) one.name = "other." + one.name;
  EXPECT_THAT(diff_text(before.value(), other), HasSubstr("Note: No tensor has the same name in both jobs"));
  other.has_steps = false;
  EXPECT_THAT(diff_text(before.value(), other), HasSubstr("Note: The job after marks no steps"));
}

TEST_F(SummaryTest, a_diff_names_the_link_that_is_slow_in_one_of_the_jobs) {
  const Summary good = summarize_files({write({})}).value();
  Summary bad = good;
  bad.links = {{.rank = 2, .out_gbps = 0.005, .in_gbps = 0.009, .is_slow_out = true, .is_slow_in = true}};
  bad.slow_pairs = {{.end = 0, .other = 1, .sends = true, .receives = true, .speed = 0.2, .usual = 1}};
  EXPECT_THAT(diff_text(good, bad),
              HasSubstr("The link of rank 2 (host a) is slow in the job after alone: 5 MB/s on a busy"));
  EXPECT_THAT(diff_text(bad, good),
              HasSubstr("The link between rank 0 (host a) and rank 1 (host a) is slow in "
                        "the job before alone: 0.2 GB/s"));
  EXPECT_THAT(diff_text(bad, bad), Not(HasSubstr("alone")));
  const auto json = nlohmann::json::parse(diff_json(good, bad));
  EXPECT_EQ(json["slow_only_after"][0]["ranks"], nlohmann::json::parse("[2]"));
  EXPECT_EQ(json["slow_only_after"][1]["ranks"], nlohmann::json::parse("[0, 1]"));
  EXPECT_TRUE(json["slow_only_before"].empty());
}

}  // namespace
}  // namespace rueda::timeline::diff_test
