// Which ends of a job are followed by another try, and when.
#include "launch/restarts.h"

#include <gtest/gtest.h>

namespace rueda::launch::restarts_test {
namespace {

TEST(Restarts, a_failed_job_is_started_again_as_often_as_was_said) {
  Restarts restarts(2, 0);
  EXPECT_EQ(restarts.count(), 0);
  EXPECT_TRUE(restarts.follows(TryEnd::kFailed, 137, kSecond));
  EXPECT_EQ(restarts.count(), 1);
  EXPECT_EQ(restarts.notice(), "the job ended with exit status 137 and is started again (restart 1 of 2)");
  EXPECT_TRUE(restarts.follows(TryEnd::kFailed, 1, kSecond));
  EXPECT_FALSE(restarts.follows(TryEnd::kFailed, 3, kSecond));
  EXPECT_EQ(restarts.count(), 2);
  EXPECT_EQ(restarts.notice(), "the job was started 3 times; exit statuses: 137, 1, 3");
}

TEST(Restarts, a_job_that_ends_well_or_is_stopped_is_not_started_again) {
  for (const TryEnd end : {TryEnd::kWell, TryEnd::kInterrupted}) {
    Restarts restarts(5, 0);
    EXPECT_FALSE(restarts.follows(end, 130, kSecond));
    EXPECT_EQ(restarts.notice(), "");
  }
}

TEST(Restarts, what_was_never_there_is_not_tried_again_but_a_host_that_has_gone_is) {
  Restarts restarts(3, 0);
  EXPECT_FALSE(restarts.follows(TryEnd::kNotStarted, 127, kSecond));
  Restarts later(3, 0);
  EXPECT_TRUE(later.follows(TryEnd::kFailed, 1, kSecond));
  EXPECT_TRUE(later.follows(TryEnd::kNotStarted, 1, kSecond));
}

TEST(Restarts, without_the_option_nothing_is_said) {
  Restarts restarts(0, kSecond);
  EXPECT_FALSE(restarts.follows(TryEnd::kFailed, 1, kSecond));
  EXPECT_EQ(restarts.notice(), "");
}

// The pauses after tries of these lengths.
std::vector<Nanos> pauses_after(Nanos first, std::initializer_list<Nanos> tries) {
  Restarts restarts(1'000, first);
  std::vector<Nanos> pauses;
  for (const Nanos lasted : tries) {
    EXPECT_TRUE(restarts.follows(TryEnd::kFailed, 1, lasted));
    pauses.push_back(restarts.pause());
  }
  return pauses;
}

TEST(Restarts, the_pause_doubles_up_to_half_a_minute) {
  constexpr Nanos kShort = 2 * kSecond;
  EXPECT_EQ(pauses_after(kSecond, {kShort, kShort, kShort, kShort, kShort, kShort, kShort}),
            (std::vector<Nanos>{kSecond, 2 * kSecond, 4 * kSecond, 8 * kSecond, 16 * kSecond, 30 * kSecond,
                                30 * kSecond}));
  EXPECT_EQ(pauses_after(0, {kShort, kShort}), (std::vector<Nanos>{0, 0}));
  EXPECT_EQ(pauses_after(100 * kSecond, {kShort, kShort}),
            (std::vector<Nanos>{100 * kSecond, 100 * kSecond}));
}

TEST(Restarts, the_pauses_begin_anew_after_a_try_that_got_somewhere) {
  EXPECT_EQ(pauses_after(kSecond, {0, 0, 0, kLongTry, 0}),
            (std::vector<Nanos>{kSecond, 2 * kSecond, 4 * kSecond, kSecond, 2 * kSecond}));
}

TEST(Restarts, the_pause_is_told) {
  Restarts restarts(5, kSecond / 2);
  restarts.follows(TryEnd::kFailed, 1, 0);
  EXPECT_EQ(restarts.notice(),
            "the job ended with exit status 1 and is started again in 0.5 s (restart 1 of 5)");
}

TEST(Restarts, of_many_tries_the_first_and_the_last_are_listed) {
  Restarts restarts(1'000, 0);
  for (int status = 1; status <= 120; ++status) restarts.follows(TryEnd::kFailed, status, 0);
  restarts.give_up();
  EXPECT_EQ(restarts.notice(),
            "the job was started 120 times; exit statuses: 1, 2, … 115 more …, 118, 119, 120");
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
