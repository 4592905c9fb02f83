// What an init says about ranks that do not come, with a clock of the test's own.
#include "rueda/runtime/init_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::runtime::init_wait_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Nanos kBegin = 100 * kSecond;

TEST(InitWait, says_once_after_five_seconds_who_is_missing) {
  InitWait wait;
  wait.begin(0, 4, "tcp://h:1", false, kBegin);
  EXPECT_FALSE(wait.is_due(kBegin + 4 * kSecond));
  ASSERT_TRUE(wait.is_due(kBegin + 5 * kSecond));
  EXPECT_EQ(wait.take_sentence(kBegin + 5 * kSecond), "") << "nothing is known yet";
  wait.found({2, 3}, kBegin + 5 * kSecond);
  EXPECT_FALSE(wait.is_due(kBegin + 6 * kSecond));
  EXPECT_EQ(
      wait.take_sentence(kBegin + 5 * kSecond),
      "2 of 4 ranks are missing in init, for which rank 0 has waited for 5 s: ranks 2, 3. Either they have "
      "not called init, or cannot connect to tcp://h:1. Start every rank, and look at firewalls; "
      "RUEDA_START_TIMEOUT says when init gives up.");
  EXPECT_EQ(wait.take_sentence(kBegin + 9 * kSecond), "");
  wait.found({3}, kBegin + 8 * kSecond);
  ASSERT_TRUE(wait.view().has_value());
  EXPECT_THAT(wait.view()->missing, ElementsAre(3));
  wait.end();
  EXPECT_FALSE(wait.view().has_value());
}

TEST(InitWait, nothing_is_said_where_the_launcher_says_it) {
  InitWait wait;
  wait.begin(1, 2, "tcp://h:1", true, kBegin);
  EXPECT_EQ(wait.take_sentence(kBegin + 60 * kSecond), "");
  EXPECT_THAT(wait.view()->missing, ElementsAre(0));
}

TEST(InitWait, every_rank_says_that_rank_0_is_missing) {
  InitWait wait;
  wait.begin(70, 1'000, "", false, kBegin);
  EXPECT_EQ(wait.take_sentence(kBegin + 4 * kSecond), "");
  EXPECT_THAT(
      wait.take_sentence(kBegin + 6 * kSecond),
      HasSubstr(
          "rank 0 of 1000 has not called init, or cannot be reached; rank 70 has waited for it for 6 s."));
  wait.begin(1, 2, "h", false, kBegin);
  EXPECT_THAT(wait.take_sentence(kBegin + 6 * kSecond), HasSubstr("or cannot be reached at h; rank 1 has"));
}

TEST(InitWait, in_a_large_world_only_rank_0_says_which_other_ranks_are_missing) {
  InitWait wait;
  wait.begin(1, 17, "", false, kBegin);
  wait.found({5}, kBegin + 5 * kSecond);
  EXPECT_EQ(wait.take_sentence(kBegin + 6 * kSecond), "");
  wait.begin(1, 16, "", false, kBegin);
  wait.found({5}, kBegin + 5 * kSecond);
  EXPECT_THAT(wait.take_sentence(kBegin + 6 * kSecond), HasSubstr(": rank 5."));
}

}  // namespace
}  // namespace rueda::runtime::init_wait_test
