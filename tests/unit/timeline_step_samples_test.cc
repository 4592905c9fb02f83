#include "timeline/step_samples.h"

#include <gtest/gtest.h>

namespace rueda::timeline::step_samples_test {
namespace {

// Every tenth step is late, whatever the others do: no period may hide from the steps that are kept.
TEST(StepSamples, of_a_long_job_keep_late_steps_of_every_period) {
  for (const int64_t period : {8, 10, 64}) {
    for (const int64_t phase : {int64_t{0}, period - 1}) {
      StepSamples samples;
      const int64_t steps = 100'000;
      for (int64_t step = 0; step < steps; ++step)
        samples.add({.step = step,
                     .wait = step % period == phase ? 50.0F : 0.0F,
                     .input = step % period == phase ? 50.0F : 1.0F});
      const LateSteps late = samples.late_by(&StepSample::input, 3);
      EXPECT_NEAR(static_cast<double>(late.count) * static_cast<double>(period) / static_cast<double>(steps),
                  1, 0.5)
          << period;
      EXPECT_NEAR(late.longer, 49, 0.01);
      EXPECT_EQ(late.every, period);
      EXPECT_EQ(late.first.front(), phase);
    }
  }
}

TEST(StepSamples, are_regular_only_if_most_late_steps_are_equally_far_apart) {
  StepSamples regular, irregular;
  for (int64_t step = 0; step < 100; ++step) {
    const bool is_late = step % 10 == 3, is_odd = step * step % 17 == 1;
    regular.add({.step = step, .wait = is_late ? 50.0F : 0.0F, .input = is_late ? 50.0F : 0.0F});
    irregular.add({.step = step, .wait = is_odd ? 50.0F : 0.0F, .input = is_odd ? 50.0F : 0.0F});
  }
  EXPECT_EQ(regular.late_by(&StepSample::input, 3).every, 10);
  EXPECT_EQ(regular.late_by(&StepSample::input, 3).first.front(), 3);
  StepSamples disturbed;  // two of ten by chance, and one of the others is missing
  for (int64_t step = 0; step < 100; ++step) {
    const bool is_late = (step % 10 == 3 && step != 43) || step == 16 || step == 61;
    disturbed.add({.step = step, .wait = is_late ? 50.0F : 0.0F, .input = is_late ? 50.0F : 0.0F});
  }
  EXPECT_EQ(disturbed.late_by(&StepSample::input, 3).every, 10);
  EXPECT_EQ(disturbed.late_by(&StepSample::input, 3).first.front(), 3);
  EXPECT_EQ(irregular.late_by(&StepSample::input, 3).every, 0);
  EXPECT_EQ(regular.late_by(&StepSample::compute, 3).count, 0);
}

TEST(StepSamples, of_a_long_job_are_not_regular_by_chance) {
  StepSamples samples;
  for (int64_t step = 0; step < 20'000; ++step) {
    const bool is_late = (static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15U >> 40) % 10 == 0;
    samples.add({.step = step, .wait = is_late ? 50.0F : 0.0F, .input = is_late ? 50.0F : 0.0F});
  }
  const LateSteps late = samples.late_by(&StepSample::input, 3);
  EXPECT_GT(late.count, 1'000);
  EXPECT_EQ(late.every, 0);
}

// Whoever waits for it: every twentieth step takes far longer, and by chance a few others take somewhat
// longer, and one very long.
TEST(StepSamples, far_longer_ones_are_found_beside_others) {
  const auto of = [](auto&& compute) {
    StepSamples samples;
    for (int64_t step = 0; step < 200; ++step)
      samples.add({.step = step, .compute = static_cast<float>(compute(step))});
    return samples.far_longer(&StepSample::compute, 3);
  };
  const LateSteps late = of([](int64_t step) {
    if (step == 31) return 10'000;
    return step % 20 == 19 ? 100 : step % 13 == 5 ? 35 : 10;
  });
  EXPECT_EQ(late.count, 10);
  EXPECT_EQ(late.every, 20);
  EXPECT_EQ(late.first.front(), 19);
  EXPECT_NEAR(late.longer, 90, 0.1);
  EXPECT_EQ(of([](int64_t step) { return step < 2 ? 1'000 : 10; }).count, 0) << "two are no kind";
  EXPECT_EQ(of([](int64_t) { return 10; }).count, 0);
  EXPECT_EQ(of([](int64_t) { return 0; }).count, 0);
  EXPECT_EQ(StepSamples().far_longer(&StepSample::compute, 3).count, 0);
}

}  // namespace
}  // namespace rueda::timeline::step_samples_test
