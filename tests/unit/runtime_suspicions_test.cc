#include "rueda/runtime/suspicions.h"

#include <gtest/gtest.h>

namespace rueda::runtime::suspicions_test {
namespace {

constexpr Nanos kStart = 100 * kSecond;

TEST(Suspicions, a_suspect_that_answers_lives_and_the_connection_broke) {
  Suspicions suspicions;
  EXPECT_TRUE(suspicions.is_empty());
  suspicions.report(2, 3, "reset", kStart);
  EXPECT_FALSE(suspicions.judge(kStart).has_value());
  EXPECT_EQ(suspicions.next_event(), kStart + kAnswerWait);
  suspicions.answered(2, kStart);
  EXPECT_FALSE(suspicions.judge(kStart + 1).has_value()) << "of the reporter nobody doubted it";
  suspicions.answered(3, kStart - 1);
  EXPECT_FALSE(suspicions.judge(kStart + 1).has_value()) << "it was asked before the channel broke";
  suspicions.answered(3, kStart);
  const auto verdict = suspicions.judge(kStart + 1);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->is_lost);
  EXPECT_EQ(verdict->reporter, 2);
  EXPECT_EQ(verdict->suspect, 3);
  EXPECT_EQ(verdict->why, "reset");
}

TEST(Suspicions, two_ranks_that_report_each_other_both_live) {
  Suspicions suspicions;
  suspicions.report(2, 3, "reset", kStart);
  suspicions.report(3, 2, "reset", kStart + 1);
  const auto verdict = suspicions.judge(kStart + 1);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->is_lost);
}

TEST(Suspicions, a_suspect_that_does_not_answer_in_time_is_lost) {
  Suspicions suspicions;
  suspicions.report(1, 3, "reset", kStart);
  suspicions.report(2, 3, "reset", kStart + 10);
  EXPECT_FALSE(suspicions.judge(kStart + kAnswerWait - 1).has_value());
  const auto verdict = suspicions.judge(kStart + kAnswerWait);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->is_lost);
  EXPECT_EQ(verdict->suspect, 3);
  EXPECT_EQ(verdict->reporter, 1);
}

}  // namespace
}  // namespace rueda::runtime::suspicions_test
