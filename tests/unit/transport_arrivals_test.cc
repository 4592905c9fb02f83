#include "rueda/transport/tcp/arrivals.h"

#include <gtest/gtest.h>

namespace rueda::transport::arrivals_test {
namespace {

TEST(Arrivals, count_from_the_moment_at_which_a_part_was_read_and_nothing_more_was_there) {
  Arrivals arrivals;
  arrivals.read(100, true, 1'000, 1'000);  // the first part came at any time before
  arrivals.read(60, true, 1'900, 2'000);
  arrivals.read(40, false, 2'900, 3'000);  // the message ends
  EXPECT_EQ(arrivals.bytes(), 0);          // not yet: the next message may be there
  arrivals.read(50, false, 3'100, 3'200);
  arrivals.end();
  EXPECT_EQ(arrivals.bytes(), 150);
  EXPECT_EQ(arrivals.time(), 2'200);
}

TEST(Arrivals, messages_that_had_come_as_a_whole_and_idle_times_say_nothing) {
  Arrivals arrivals;
  arrivals.read(100, false, 1'000, 1'000);
  arrivals.end();
  arrivals.read(100, false, 9'000, 9'000);
  arrivals.end();
  EXPECT_FALSE(arrivals.is_on());
  EXPECT_EQ(arrivals.bytes(), 0);
  EXPECT_EQ(arrivals.time(), 0);
  arrivals.read(10, true, 20'000, 20'000);
  arrivals.read(90, false, 20'500, 20'600);
  arrivals.end();
  arrivals.read(10, true, 90'000, 90'000);
  arrivals.read(90, false, 90'300, 90'400);
  arrivals.end();
  EXPECT_EQ(arrivals.bytes(), 180);
  EXPECT_EQ(arrivals.time(), 1'000);
}

}  // namespace
}  // namespace rueda::transport::arrivals_test
