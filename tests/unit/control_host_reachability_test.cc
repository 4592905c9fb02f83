// Which hosts acknowledge nothing, as all ranks say. Ranks 0 and 1 are on one host, 2 and 3 on the next, 4
// alone.
#include "rueda/control/host_reachability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::control::host_reachability_test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Nanos kNow = 100 * kSecond, kLimit = 5 * kSecond;

class ReachOfThreeHosts : public testing::Test {
 protected:
  HostReachability reachability_{0, {0, 0, 2, 2, 4}};
};

TEST_F(ReachOfThreeHosts, a_host_is_silent_as_long_as_its_latest_acknowledgement_is_old) {
  reachability_.on_facts(0, {{.of = 2, .age = 9 * kSecond}, {.of = 3, .age = 7 * kSecond}}, kNow);
  EXPECT_EQ(reachability_.host_silence(2, kNow), 7 * kSecond);
  EXPECT_EQ(reachability_.host_silence(3, kNow), 7 * kSecond);
  EXPECT_EQ(reachability_.host_silence(4, kNow), 0);
  EXPECT_EQ(reachability_.silence(2, kNow), 9 * kSecond);
}

TEST_F(ReachOfThreeHosts, a_host_of_which_one_connection_is_acknowledged_answers) {
  reachability_.on_facts(0, {{.of = 2, .age = 9 * kSecond}}, kNow);
  EXPECT_EQ(reachability_.host_silence(2, kNow), 0);
  EXPECT_EQ(reachability_.silence(2, kNow), 9 * kSecond);
}

TEST_F(ReachOfThreeHosts, old_news_are_no_news) {
  reachability_.on_facts(0, {{.of = 4, .age = 9 * kSecond}}, kNow);
  EXPECT_EQ(reachability_.host_silence(4, kNow + 3 * kSecond), 9 * kSecond);
  EXPECT_EQ(reachability_.host_silence(4, kNow + 3 * kSecond + 1), 0);
}

TEST_F(ReachOfThreeHosts, what_other_ranks_do_not_reach_is_a_cut_link_said_once_and_over_once) {
  reachability_.on_facts(4, {{.of = 3, .age = 6 * kSecond}, {.of = 2, .age = 6 * kSecond}}, kNow);
  reachability_.on_facts(2, {{.of = 4, .age = 6 * kSecond}}, kNow);
  const auto said = reachability_.cut_links({}, kLimit, kNow);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kCutLink);
  EXPECT_EQ(said[0].rank, 2);
  EXPECT_EQ(said[0].other_end, 4);
  EXPECT_EQ(said[0].age, 6 * kSecond);
  EXPECT_FALSE(said[0].is_over);
  EXPECT_THAT(reachability_.cut_links({}, kLimit, kNow + kSecond), IsEmpty());
  reachability_.on_facts(4, {}, kNow + 2 * kSecond);
  reachability_.on_facts(2, {}, kNow + 2 * kSecond);
  const auto over = reachability_.cut_links({}, kLimit, kNow + 2 * kSecond);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].is_over);
  EXPECT_EQ(over[0].age, 8 * kSecond);
}

TEST_F(ReachOfThreeHosts, a_link_is_not_blamed_for_a_host_that_does_not_answer_at_all) {
  reachability_.on_facts(4, {{.of = 2, .age = 6 * kSecond}, {.of = 3, .age = 6 * kSecond}}, kNow);
  EXPECT_THAT(reachability_.cut_links({2, 3}, kLimit, kNow), IsEmpty());
}

TEST_F(ReachOfThreeHosts, a_link_is_not_cut_before_the_limit) {
  reachability_.on_facts(4, {{.of = 2, .age = kLimit - 1}}, kNow);
  EXPECT_THAT(reachability_.cut_links({}, kLimit, kNow), IsEmpty());
}

}  // namespace
}  // namespace rueda::control::host_reachability_test
