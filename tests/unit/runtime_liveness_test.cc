#include "rueda/runtime/liveness.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime_links_world.h"

namespace rueda::runtime::liveness_test {
namespace {

Hierarchy seen_by(Rank me, const std::string& hosts) { return {me, world(hosts, {"far"})}; }

TEST(Liveness, coordinator_names_the_rank_that_fell_silent) {
  const Hierarchy hierarchy = seen_by(0, "aaa");
  Liveness liveness(hierarchy, 10 * kSecond, 0);
  liveness.heard(1, 9 * kSecond);
  EXPECT_FALSE(liveness.silent(10 * kSecond).has_value());
  EXPECT_EQ(liveness.silent(11 * kSecond), 2);
}

TEST(Liveness, other_ranks_watch_only_their_parent) {
  const Hierarchy hierarchy = seen_by(1, "aaa");
  Liveness liveness(hierarchy, 10 * kSecond, 0);
  liveness.heard(0, 9 * kSecond);
  EXPECT_FALSE(liveness.silent(11 * kSecond).has_value());
  EXPECT_EQ(liveness.silent(20 * kSecond), 0);
}

TEST(Liveness, a_rank_below_a_leader_watches_the_leader_and_not_the_root) {
  const Hierarchy hierarchy = seen_by(3, "aabb");
  Liveness liveness(hierarchy, 10 * kSecond, 0);
  liveness.heard(2, 9 * kSecond);
  EXPECT_FALSE(liveness.silent(11 * kSecond).has_value());
  EXPECT_EQ(liveness.silent(20 * kSecond), 2);
}

TEST(Liveness, the_silence_of_a_leader_is_not_that_of_the_ranks_below_it) {
  const Hierarchy hierarchy = seen_by(0, "aabb");
  Liveness liveness(hierarchy, 10 * kSecond, 0);
  liveness.heard(1, 10 * kSecond);
  liveness.heard(2, kSecond / 2);  // later than rank 3, which has been silent for longer than the limit
  EXPECT_FALSE(liveness.silent(10 * kSecond + 1).has_value());
  EXPECT_EQ(liveness.silent(11 * kSecond), 2);
  liveness.heard(2, 11 * kSecond);
  EXPECT_EQ(liveness.silent(11 * kSecond), 3) << "nothing but itself stands between it and its leader";
}

TEST(Liveness, a_leader_pings_when_it_is_pinged_and_soon_after_if_it_is_not) {
  const Hierarchy hierarchy = seen_by(2, "aabb");
  Liveness liveness(hierarchy, 40 * kSecond, 0);
  liveness.pinged(0);
  EXPECT_FALSE(liveness.take_due(kSecond));
  EXPECT_TRUE(liveness.take_due(kSecond * 3 / 2));
}

TEST(Liveness, pings_are_due_once_per_interval) {
  const Hierarchy hierarchy = seen_by(0, "aa");
  Liveness liveness(hierarchy, 2 * kSecond, 0);
  EXPECT_TRUE(liveness.take_due(0));
  EXPECT_FALSE(liveness.take_due(kSecond / 4));
  EXPECT_TRUE(liveness.take_due(kSecond / 2));
}

TEST(Liveness, a_process_that_was_stopped_itself_blames_nobody) {
  const Hierarchy hierarchy = seen_by(0, "aa");
  Liveness liveness(hierarchy, 4 * kSecond, 0);
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
