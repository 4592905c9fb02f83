#include "rueda/runtime/liveness.h"

#include <gtest/gtest.h>

namespace rueda::runtime::liveness_test {
namespace {

TEST(Liveness, coordinator_names_the_rank_that_fell_silent) {
  Liveness liveness(0, 3, 10 * kSecond, 0);
  liveness.heard(1, 9 * kSecond);
  EXPECT_FALSE(liveness.silent(10 * kSecond).has_value());
  EXPECT_EQ(liveness.silent(11 * kSecond), 2);
}

TEST(Liveness, other_ranks_watch_only_the_coordinator) {
  Liveness liveness(1, 3, 10 * kSecond, 0);
  liveness.heard(0, 9 * kSecond);
  EXPECT_FALSE(liveness.silent(11 * kSecond).has_value());
  EXPECT_EQ(liveness.silent(20 * kSecond), 0);
}

TEST(Liveness, pings_are_due_once_per_interval) {
  Liveness liveness(0, 2, 2 * kSecond, 0);
  EXPECT_TRUE(liveness.take_due(0));
  EXPECT_FALSE(liveness.take_due(kSecond / 4));
  EXPECT_TRUE(liveness.take_due(kSecond / 2));
}

TEST(Liveness, a_process_that_was_stopped_itself_blames_nobody) {
  Liveness liveness(0, 2, 4 * kSecond, 0);
  EXPECT_TRUE(liveness.take_due(0));
  const Nanos later = 100 * kSecond;  // SIGSTOP … SIGCONT
  EXPECT_TRUE(liveness.take_due(later));
  EXPECT_FALSE(liveness.silent(later).has_value());
}

TEST(Liveness, an_echo_tells_how_far_the_clock_of_the_answerer_is_ahead) {
  // It is 1,000 ahead; the way there takes 10 and the way back 30.
  const trace::ClockSample slow = clock_of_asker({.sent = 1'020, .echo_sent = 5, .echo_received = 1'015}, 50);
  EXPECT_EQ(slow.offset, 990);
  EXPECT_EQ(slow.round_trip, 40);
  EXPECT_EQ(slow.at, 27);
  EXPECT_EQ(clock_of_asker({.sent = 3'005, .echo_sent = 2'000, .echo_received = 3'005}, 2'010).offset, 1'000);
}

}  // namespace
}  // namespace rueda::runtime::liveness_test
