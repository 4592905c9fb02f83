// Settings become durations that can be added to any point in time.
#include "rueda/base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace rueda::base_clock_test {
namespace {

TEST(Nanos, are_a_value_in_its_unit) {
  EXPECT_EQ(nanos(30, kSecond), 30 * kSecond);
  EXPECT_EQ(nanos(0.25, kMillisecond), 250 * kMicrosecond);
  EXPECT_EQ(nanos(0, kSecond), 0);
}

TEST(Nanos, of_a_huge_value_may_still_be_added_to_a_point_in_time) {
  for (const double huge : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(nanos(huge, kSecond), kLongestTime);
    EXPECT_FALSE(Deadline::after(nanos(huge, kSecond)).is_past());
  }
}

TEST(Nanos, are_never_negative) {
  for (const double none : {-1.0, -1e300, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(nanos(none, kSecond), 0);
}

}  // namespace
}  // namespace rueda::base_clock_test
