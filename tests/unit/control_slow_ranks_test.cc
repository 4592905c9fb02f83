#include "rueda/control/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::control::slow_ranks_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Slow : public testing::Test {
 protected:
  // Each second the others have waited for rank 2 for that share of the last 10 s.
  std::vector<Verdict> pass(int seconds, double share, const std::set<Rank>& told = {}) {
    std::vector<Verdict> said;
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecond;
      std::vector<StragglerDetector::Straggler> found;
      if (share > 0) found.push_back({.rank = 2, .share = share, .window = 10 * kSecond});
      for (Verdict& verdict : ranks_.tick(found, told, now_)) said.push_back(std::move(verdict));
    }
    return said;
  }
  SlowRanks ranks_;
  Nanos now_ = 1'000 * kSecond;
};

std::string line_of(const Verdict& verdict) {
  return verdict_line(verdict, [](Rank rank) { return "rank " + std::to_string(rank); });
}

TEST_F(Slow, a_rank_for_which_others_wait_much_is_said_after_half_a_minute_and_again_every_five) {
  EXPECT_THAT(pass(20, 0.6), IsEmpty()) << "the first look saw ten seconds";
  std::vector<Verdict> said = pass(10, 0.6);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].rank, 2);
  said[0].core_percent = 97;
  EXPECT_THAT(line_of(said[0]),
              HasSubstr("Verdict: slow: rank 2: most others have waited for it for 60 % of the last 30.0 s, "
                        "in waits too short "
                        "for another verdict, and it uses 97 % of a core; `rueda timeline record`"));
  EXPECT_THAT(pass(290, 0.6), IsEmpty());
  EXPECT_THAT(pass(20, 0.6), SizeIs(1));
}

TEST_F(Slow, what_ranks_that_do_the_same_wait_for_one_another_is_not_said) {
  EXPECT_THAT(pass(600, 0.25), IsEmpty());
  EXPECT_THAT(pass(15, 0.9), IsEmpty()) << "for a moment";
  EXPECT_THAT(pass(600, 0), IsEmpty());
}

TEST_F(Slow, it_is_over_when_others_have_not_waited_much_for_half_a_minute) {
  ASSERT_THAT(pass(40, 0.5), SizeIs(1));
  EXPECT_THAT(pass(29, 0.1), IsEmpty());
  const std::vector<Verdict> said = pass(1, 0.1);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(line_of(said[0]), "Verdict: slow: rank 2 is no longer slow, after 49.0 s.");
  EXPECT_THAT(pass(100, 0.5), IsEmpty()) << "five minutes have not passed";
}

TEST_F(Slow, a_rank_of_which_another_fault_is_said_is_not_called_slow_as_well) {
  EXPECT_THAT(pass(100, 0.9, {2}), IsEmpty());
  EXPECT_THAT(pass(25, 0.9), SizeIs(1)) << "it goes on, and stays slow";
}

}  // namespace
}  // namespace rueda::control::slow_ranks_test
