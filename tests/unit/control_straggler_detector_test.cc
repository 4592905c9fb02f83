// For whom ranks wait, from how long each of them has taken part, with clocks of the test's own.
#include "rueda/control/straggler_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace rueda::control::straggler_detector_test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class Ranks : public testing::Test {  // four of them
 protected:
  explicit Ranks(Rank ranks = 4) : straggler_detector_(ranks), sums_(static_cast<size_t>(ranks)) {
    for (Rank rank = 0; rank < ranks; ++rank) sums_[static_cast<size_t>(rank)].at = (rank + 1) * kHour;
    answer();
  }
  // In each second, ranks take part for these shares of it, in collectives of the world.
  void pass(int seconds, const std::vector<double>& shares) {
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecond;
      for (size_t rank = 0; rank < sums_.size(); ++rank) {
        const Nanos part = static_cast<Nanos>(shares[rank] * kSecond);
        sums_[rank].at += kSecond;
        sums_[rank].in_world += part;
        sums_[rank].in_any += part;
      }
      answer();
    }
  }
  void answer() {
    for (size_t rank = 0; rank < sums_.size(); ++rank)
      straggler_detector_.on_participation(static_cast<Rank>(rank), sums_[rank], now_);
  }
  std::map<Rank, double> taken() {
    std::map<Rank, double> seconds;
    for (const StragglerDetector::Wait& one : straggler_detector_.take())
      seconds[one.rank] = static_cast<double>(one.waited) / kSecond;
    return seconds;
  }

  static constexpr Nanos kHour = 3'600 * kSecond;
  StragglerDetector straggler_detector_;
  std::vector<Participation> sums_;
  Nanos now_ = 77 * kSecond;
};

TEST_F(Ranks, the_rank_that_takes_part_least_keeps_the_others_waiting) {
  pass(10, {0.4, 0.42, 0.1, 0.41});
  const auto waited = taken();
  ASSERT_THAT(waited, SizeIs(1));
  EXPECT_NEAR(waited.at(2), 3.1, 0.01) << "the median of the others";
  EXPECT_THAT(taken(), IsEmpty()) << "it has been taken";
  const auto stragglers = straggler_detector_.stragglers(now_);
  ASSERT_THAT(stragglers, SizeIs(1));
  EXPECT_EQ(stragglers[0].rank, 2);
  EXPECT_NEAR(stragglers[0].share, 0.31, 0.001);
  EXPECT_EQ(stragglers[0].window, 10 * kSecond);
}

TEST_F(Ranks, both_ranks_of_a_slow_host_are_named_each_with_the_whole_wait) {
  pass(10, {0.5, 0.5, 0.1, 0.12});
  const auto waited = taken();
  ASSERT_THAT(waited, SizeIs(2));
  EXPECT_NEAR(waited.at(2), 4.0, 0.01);
  EXPECT_NEAR(waited.at(3), 3.8, 0.01);
  EXPECT_EQ(straggler_detector_.stragglers(now_).front().rank, 2) << "most awaited first";
}

TEST_F(Ranks, nobody_is_named_for_noise_of_a_few_percent) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(0.3, 0.38);
  for (int i = 0; i < 60; ++i) pass(1, {noise(random), noise(random), noise(random), noise(random)});
  EXPECT_THAT(straggler_detector_.stragglers(now_), IsEmpty());
  for (const auto& [rank, waited] : taken()) EXPECT_LT(waited, 0.05 * 60) << rank;
}

TEST_F(Ranks, a_rank_that_takes_part_in_a_smaller_set_keeps_nobody_waiting) {
  for (int i = 0; i < 10; ++i) {
    sums_[1].in_any += kSecond / 2;
    pass(1, {0.5, 0, 0.5, 0.5});
  }
  EXPECT_THAT(taken(), IsEmpty());
}

TEST_F(Ranks, a_wait_inside_a_smaller_set_is_no_wait_of_all) {
  for (int i = 0; i < 10; ++i) {
    for (size_t rank = 0; rank < 3; ++rank) sums_[rank].in_any += kSecond / 2;
    pass(1, {0, 0, 0, 0});
  }
  EXPECT_THAT(taken(), IsEmpty());
}

TEST_F(Ranks, an_answer_that_is_late_makes_its_interval_longer_and_blames_nobody) {
  pass(10, {0.5, 0.5, 0.5, 0.5});
  for (int i = 0; i < 20; ++i) {
    const Nanos delay = i % 2 == 0 ? kSecond / 5 : 0;
    now_ += kSecond;
    for (size_t rank = 0; rank < 4; ++rank) {
      Participation late = sums_[rank];
      late.at += (i + 1) * kSecond + (rank == 3 ? delay : 0);
      late.in_world += (late.at - sums_[rank].at) / 2;
      late.in_any = late.in_world;
      straggler_detector_.on_participation(static_cast<Rank>(rank), late, now_);
    }
  }
  EXPECT_THAT(taken(), IsEmpty());
}

TEST_F(Ranks, what_was_is_not_told_when_ranks_no_longer_answer_or_have_hardly_begun) {
  pass(4, {1, 1, 0, 1});
  EXPECT_THAT(straggler_detector_.stragglers(now_), IsEmpty()) << "too short a time";
  pass(10, {1, 1, 0, 1});
  EXPECT_THAT(straggler_detector_.stragglers(now_), SizeIs(1));
  EXPECT_THAT(straggler_detector_.stragglers(now_ + 4 * kSecond), IsEmpty());
}

TEST_F(Ranks, a_straggler_that_has_caught_up_is_named_no_longer_than_ten_seconds) {
  pass(20, {0.6, 0.6, 0.6, 0.1});
  pass(10, {0.2, 0.2, 0.2, 0.2});
  EXPECT_THAT(straggler_detector_.stragglers(now_), IsEmpty());
}

class TwoRanks : public Ranks {
 protected:
  TwoRanks() : Ranks(2) {}
};

TEST_F(TwoRanks, the_other_one_says_how_long_it_waited) {
  pass(10, {0.9, 0.3});
  EXPECT_NEAR(taken().at(1), 6.0, 0.01);
}

}  // namespace
}  // namespace rueda::control::straggler_detector_test
