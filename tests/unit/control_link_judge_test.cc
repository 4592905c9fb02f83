// When rank 0 says that a link is slow, with a clock of the test's own.
#include "rueda/control/link_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/control/judge.h"

namespace rueda::control {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string name_of_rank(Rank rank) { return "rank " + std::to_string(rank); }

// Six ranks on three hosts. Every 2 s each rank tells what it has sent to the ranks of the other hosts.
class ThreeHosts : public testing::Test {
 protected:
  std::vector<LinkJudge::News> pass(int64_t seconds, double bytes_per_s = 8e6) {
    std::vector<LinkJudge::News> all;
    for (const Nanos end = now_ + seconds * kSecond; now_ < end;) {
      now_ += kSecond;
      if (now_ % (2 * kSecond) == 0)
        for (Rank from = 0; from < 6; ++from) tell(from, bytes_per_s * 2);
      for (LinkJudge::News& one : judge_.tick(now_)) all.push_back(one);
    }
    return all;
  }
  void tell(Rank from, double bytes) {
    std::vector<LinkFact> links;
    for (Rank to = 0; to < 6; ++to) {
      if (from / 2 == to / 2) continue;
      trace::LinkTotal& total = totals_[{from, to}];
      const bool is_slow = (from / 2 == slow_from_ || slow_from_ < 0) && to / 2 == slow_to_;
      total += {.bytes = static_cast<int64_t>(bytes),
                .busy = static_cast<Nanos>(bytes / (is_slow ? 10e6 : 100e6) * kSecond),
                .pauses = 1};
      links.push_back({.to = to, .total = total});
    }
    judge_.on_facts(from, links, now_);
  }

  LinkJudge judge_{{0, 0, 2, 2, 4, 4}};
  Nanos now_ = 100 * kSecond;
  trace::LinkTotals totals_;
  Rank slow_from_ = -2, slow_to_ = -2;  // hosts; -1: all others
};

TEST_F(ThreeHosts, equal_links_are_not_mentioned) { EXPECT_THAT(pass(60), IsEmpty()); }

TEST_F(ThreeHosts, a_slow_pair_of_hosts_is_said_once_and_taken_back) {
  EXPECT_THAT(pass(10), IsEmpty());
  slow_from_ = 0, slow_to_ = 2;
  const auto said = pass(60);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_FALSE(said[0].is_over);
  const Verdict verdict{.fault = Fault::kSlowLink, .rank = said[0].link.end, .link = said[0].link};
  const std::string line = verdict_line(verdict, name_of_rank);
  EXPECT_THAT(line, HasSubstr("slow link: rank 0 to rank 4: bytes move at "));
  EXPECT_THAT(line, HasSubstr(" while a connection is busy, and 100 MB/s is usual between the other hosts"));
  slow_from_ = slow_to_ = -2;
  const auto over = pass(20);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].is_over);
  EXPECT_NEAR(static_cast<double>(over[0].age) / kSecond, 60, 12);
  // Soon slow again: it is not said a second time.
  slow_from_ = 0, slow_to_ = 2;
  EXPECT_THAT(pass(60), IsEmpty());
  EXPECT_THAT(pass(300), SizeIs(1));
}

TEST_F(ThreeHosts, a_slow_port_is_said_within_seconds_and_not_its_pairs) {
  slow_from_ = -1, slow_to_ = 1;
  const auto said = pass(10);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].link.end, 2);
  EXPECT_EQ(said[0].link.other, -1);
  EXPECT_TRUE(said[0].link.receives && !said[0].link.sends);
}

TEST_F(ThreeHosts, a_link_on_which_nothing_moves_any_more_is_not_taken_back) {
  slow_from_ = 0, slow_to_ = 2;
  EXPECT_THAT(pass(20), SizeIs(1));
  slow_from_ = slow_to_ = -2;
  EXPECT_THAT(pass(60, 0), IsEmpty());
}

}  // namespace
}  // namespace rueda::control
