#include "timeline/typical.h"

#include <gtest/gtest.h>

namespace rueda::timeline::typical_test {
namespace {

TEST(Typical, is_the_mean_of_all_but_the_longest) {
  Typical typical;
  EXPECT_EQ(typical.mean(), 0);
  for (int i = 0; i < 100; ++i) typical.add(i == 40 ? 8e9 : i % 2 == 0 ? 10 : 20);
  EXPECT_NEAR(typical.mean(), 15, 0.6);
}

TEST(Typical, of_few_values_is_their_mean) {
  Typical typical;
  for (const double value : {1.0, 2.0, 9.0}) typical.add(value);
  EXPECT_EQ(typical.mean(), 4);
}

TEST(Typical, what_is_long_in_every_tenth_step_counts) {
  Typical typical;
  for (int i = 0; i < 1'000; ++i) typical.add(i % 10 == 0 ? 1'010 : 10);
  EXPECT_GT(typical.mean(), 50);
}

TEST(Typical, of_very_many_values_evenly_spread_ones_are_kept) {
  Typical typical;
  for (int i = 0; i < 100'000; ++i) typical.add(i);
  EXPECT_NEAR(typical.mean(), 47'500, 500);
}

}  // namespace
}  // namespace rueda::timeline::typical_test
