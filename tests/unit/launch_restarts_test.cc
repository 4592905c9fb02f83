// Which ends of a job are followed by another try.
#include "launch/restarts.h"

#include <gtest/gtest.h>

namespace rueda::launch::restarts_test {
namespace {

TEST(Restarts, a_failed_job_is_started_again_as_often_as_was_said) {
  Restarts restarts(2);
  EXPECT_EQ(restarts.count(), 0);
  EXPECT_TRUE(restarts.follows(TryEnd::kFailed, 137));
  EXPECT_EQ(restarts.count(), 1);
  EXPECT_EQ(restarts.notice(), "the job ended with exit status 137 and is started again (restart 1 of 2)");
  EXPECT_TRUE(restarts.follows(TryEnd::kFailed, 1));
  EXPECT_FALSE(restarts.follows(TryEnd::kFailed, 3));
  EXPECT_EQ(restarts.count(), 2);
  EXPECT_EQ(restarts.notice(), "the job was started 3 times; exit statuses: 137, 1, 3");
}

TEST(Restarts, a_job_that_ends_well_or_is_stopped_is_not_started_again) {
  for (const TryEnd end : {TryEnd::kWell, TryEnd::kInterrupted}) {
    Restarts restarts(5);
    EXPECT_FALSE(restarts.follows(end, 130));
    EXPECT_EQ(restarts.notice(), "");
  }
}

TEST(Restarts, what_was_never_there_is_not_tried_again_but_a_host_that_has_gone_is) {
  Restarts restarts(3);
  EXPECT_FALSE(restarts.follows(TryEnd::kNotStarted, 127));
  Restarts later(3);
  EXPECT_TRUE(later.follows(TryEnd::kFailed, 1));
  EXPECT_TRUE(later.follows(TryEnd::kNotStarted, 1));
}

TEST(Restarts, without_the_option_nothing_is_said) {
  Restarts restarts(0);
  EXPECT_FALSE(restarts.follows(TryEnd::kFailed, 1));
  EXPECT_EQ(restarts.notice(), "");
}

TEST(Restarts, the_end_of_a_try_follows_from_the_ends_of_its_ranks) {
  const Ending well{.rank = 0, .host = "a", .pid = 7};
  const Ending failed{.rank = 1, .host = "a", .pid = 8, .exit_code = 1};
  const Ending lost{.rank = 1, .host = "b", .pid = 9, .trouble = "was lost with its host"};
  const Ending missing{.rank = 1, .host = "a", .exit_code = 127, .trouble = "could not be started"};
  const Ending early{.rank = 2, .host = "a", .was_stopped = true, .trouble = "stopped before its start"};
  EXPECT_EQ(judge_end(std::vector{well, well}), TryEnd::kWell);
  EXPECT_EQ(judge_end(std::vector{well, failed, early}), TryEnd::kFailed);
  EXPECT_EQ(judge_end(std::vector{well, lost}), TryEnd::kFailed);
  EXPECT_EQ(judge_end(std::vector{failed, missing}), TryEnd::kNotStarted);
}

}  // namespace
}  // namespace rueda::launch::restarts_test
