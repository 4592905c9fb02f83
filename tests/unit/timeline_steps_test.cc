#include <gtest/gtest.h>

#include <set>

#include "timeline/step_sources.h"

namespace rueda::timeline::steps_test {
namespace {

TEST(StepSources, of_two_in_turn_the_first_counts) {
  StepSources sources;
  for (Nanos step = 0; step < 10; ++step) {
    sources.add(7, 1 + step * 10);
    sources.add(8, 5 + step * 10);
  }
  const Steps steps = sources.steps();
  EXPECT_EQ(steps.sources, std::set<int64_t>{7});
  EXPECT_EQ(steps.marks, 10);
  EXPECT_EQ(steps.first_mark, 1);
  EXPECT_EQ(steps.last_mark, 91);
  EXPECT_FALSE(steps.is_mark_of(8));
}

TEST(StepSources, a_second_training_goes_on_with_the_count) {
  StepSources sources;
  for (Nanos step = 0; step < 4; ++step) sources.add(0, 1 + step);
  for (Nanos step = 0; step < 6; ++step) {
    sources.add(3, 100 + step * 10);
    sources.add(2, 104 + step * 10);
  }
  const Steps steps = sources.steps();
  EXPECT_EQ(steps.sources, (std::set<int64_t>{0, 3}));
  EXPECT_EQ(steps.marks, 10);
  EXPECT_EQ(steps.first_mark, 1);
  EXPECT_EQ(steps.last_mark, 150);
}

TEST(StepSources, a_file_with_more_sources_than_a_program_has_is_bounded) {
  StepSources sources;
  for (int64_t source = 0; source < 100'000; ++source) sources.add(source, 1 + source);
  EXPECT_EQ(sources.steps().marks, 4'096);
  EXPECT_EQ(StepSources().steps().marks, 0);
}

}  // namespace
}  // namespace rueda::timeline::steps_test
