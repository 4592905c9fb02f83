#include "timeline/step_sums.h"

#include <gtest/gtest.h>

namespace rueda::timeline::step_sums_test {
namespace {

TEST(StepSums, of_nothing_no_steps_hold_a_part) {
  StepSums sums;
  EXPECT_EQ(sums.shortest_with(0.9, 0).count(), 0);
  sums.add(3, 0);
  EXPECT_EQ(sums.shortest_with(0.9, 4).count(), 0);
}

TEST(StepSums, the_fewest_steps_in_a_row_are_found) {
  StepSums sums;
  for (int64_t step = 0; step < 300; ++step) sums.add(step, step >= 100 && step < 150 ? 8 : 0.1);
  const StepRange range = sums.shortest_with(0.9, 300);
  EXPECT_GE(range.first, 100);
  EXPECT_LE(range.last, 149);
  EXPECT_GE(range.count(), 47) << "of 425 in all, 8 each";
}

TEST(StepSums, the_sum_of_a_range_has_the_steps_that_are_taken_together_with_it) {
  StepSums few, many;
  for (int64_t step = 0; step < 100; ++step) few.add(step, 2);
  EXPECT_EQ(few.sum({.first = 10, .last = 19}), 20);
  EXPECT_EQ(few.sum({.first = 90, .last = 200}), 20);
  EXPECT_EQ(few.sum({}), 0) << "no steps";
  for (int64_t step = 0; step < 2'000; ++step) many.add(step, 1);
  EXPECT_EQ(many.sum({.first = 400, .last = 799}), 400);
  EXPECT_EQ(many.sum({.first = 401, .last = 402}), 4);
}

TEST(StepSums, what_is_even_is_not_in_few_steps) {
  StepSums sums;
  for (int64_t step = 0; step < 100; ++step) sums.add(step, 2);
  EXPECT_EQ(sums.shortest_with(0.9, 100).count(), 90);
  EXPECT_EQ(sums.shortest_with(1, 100).count(), 100);
}

TEST(StepSums, steps_of_long_jobs_are_taken_together) {
  StepSums sums;
  constexpr int64_t kSteps = 1'000'001;
  for (int64_t step = 0; step < kSteps; ++step) sums.add(step, step >= 900'000 ? 1 : 0);
  const StepRange range = sums.shortest_with(0.95, kSteps);
  EXPECT_NEAR(static_cast<double>(range.count()), 95'000, 2 * 2'048);
  EXPECT_GE(range.first, 900'000 - 2'048);
  EXPECT_LT(range.last, kSteps);
}

TEST(StepSums, steps_without_a_value_may_be_left_out) {
  StepSums sums;
  sums.add(7, 1);
  sums.add(5'000, 1'000);
  const StepRange range = sums.shortest_with(0.9, 6'000);
  EXPECT_LE(range.first, 5'000);
  EXPECT_GE(range.last, 5'000);
  EXPECT_LE(range.count(), 16);
}

}  // namespace
}  // namespace rueda::timeline::step_sums_test
