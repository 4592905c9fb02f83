// When rank 0 says that a link is slow, with a clock of the test's own.
#include "rueda/control/link_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "rueda/control/judge.h"

namespace rueda::control::link_judge_test {
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
      links.push_back({.with = to, .sent = total, .received = {}});
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

TEST_F(ThreeHosts, what_happened_once_is_not_said) {
  EXPECT_THAT(pass(10), IsEmpty());
  slow_from_ = 0, slow_to_ = 2;
  EXPECT_THAT(pass(2), IsEmpty());
  slow_from_ = slow_to_ = -2;
  EXPECT_THAT(pass(60), IsEmpty());
}

TEST_F(ThreeHosts, a_link_that_is_used_every_twenty_seconds_is_said_at_the_second_time) {
  slow_from_ = 0, slow_to_ = 2;
  EXPECT_THAT(pass(2), IsEmpty());
  EXPECT_THAT(pass(2), IsEmpty());
  EXPECT_THAT(pass(18, 0), IsEmpty());
  EXPECT_THAT(pass(4), SizeIs(1));
}

// Messages of 64 KiB that take 0.7 ms: only with what the receivers tell is a link slow.
class ShortMessages : public ThreeHosts, public testing::WithParamInterface<bool> {
 protected:
  std::vector<LinkJudge::News> pass_short(int64_t seconds) {
    std::vector<LinkJudge::News> all;
    for (const Nanos end = now_ + seconds * kSecond; now_ < end;) {
      now_ += kSecond;
      if (now_ % (2 * kSecond) == 0)
        for (Rank me = 0; me < 6; ++me) tell_both(me);
      for (LinkJudge::News& one : judge_.tick(now_)) all.push_back(one);
    }
    return all;
  }
  void tell_both(Rank me) {
    std::vector<LinkFact> links;
    for (Rank peer = 0; peer < 6; ++peer) {
      if (me / 2 == peer / 2) continue;
      totals_[{me, peer}] += count(me, peer);
      const trace::LinkTotal& sent = totals_[{me, peer}];
      trace::LinkTotal& received = arrived_[{peer, me}];
      const trace::LinkTotal more = count(peer, me);
      if (GetParam()) received += {.awaited_bytes = more.bytes / 2, .awaited = more.busy / 2};
      links.push_back({.with = peer, .sent = sent, .received = received});
    }
    judge_.on_facts(me, links, now_);
  }
  trace::LinkTotal count(Rank from, Rank to) const {
    const double speed = from / 2 == 1 || to / 2 == 1 ? slow_ : 100e6;
    return {.bytes = 16 << 20, .busy = static_cast<Nanos>((16 << 20) / speed * kSecond), .pauses = 256};
  }
  double slow_ = 100e6;
  trace::LinkTotals arrived_;
};

TEST_P(ShortMessages, a_slow_port_is_named_if_the_receivers_say_the_same) {
  EXPECT_THAT(pass_short(20), IsEmpty());
  slow_ = 20e6;
  const auto said = pass_short(20);
  ASSERT_THAT(said, SizeIs(GetParam() ? 1 : 0));
  if (said.empty()) return;
  EXPECT_EQ(said[0].link.end, 2);
  EXPECT_EQ(said[0].link.other, -1);
  slow_ = 100e6;
  const auto over = pass_short(30);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].is_over);
}
INSTANTIATE_TEST_SUITE_P(Receivers, ShortMessages, testing::Bool());

// Three hosts with a rank each, on a machine that does more than it can. All links move the same bytes in the
// long run, because every step waits for the slowest. But nothing is even: bytes come in messages of up to
// half a megabyte; ranks tell what they have sent every 2 to 3.3 s, each at times of its own; a link does a
// third to twice of its rate meanwhile; one time in twenty a message is 300 ms late; and each is up to 40 ms
// late to a rank that has no core. Measured on two cores with twelve ranks, at 100 and 10 Mbit/s: a slow
// port's links did 0.17 to 1.4 MB/s over 2 s, the others 6 to 30.
class NoisyHosts {
 public:
  explicit NoisyHosts(unsigned seed) : random_(seed) {}
  void plant(std::vector<std::pair<Rank, Rank>> links) { slow_ = std::move(links); }
  void make_all_slow() { usual_ = kSlowRate; }
  // What the judge says in this time, each with the time since its beginning.
  std::vector<std::pair<double, LinkJudge::News>> pass(double seconds) {
    std::vector<std::pair<double, LinkJudge::News>> all;
    const Nanos begin = now_, end = now_ + static_cast<Nanos>(seconds * kSecond);
    for (; now_ < end; now_ += kSecond / 10) {
      moved_ += 0.1 * std::min(uniform(0.3e6, 0.9e6), 0.8 * (slow_.empty() ? usual_ : kSlowRate));
      for (Rank from = 0; from < 3; ++from)
        if (now_ >= next_[static_cast<size_t>(from)]) tell(from);
      for (LinkJudge::News& one : judge_.tick(now_))
        all.emplace_back(static_cast<double>(now_ - begin) / kSecond, one);
    }
    return all;
  }

 private:
  static constexpr double kSlowRate = 1.2e6;
  double uniform(double least, double most) { return std::uniform_real_distribution(least, most)(random_); }
  void tell(Rank from) {
    std::vector<LinkFact> links;
    for (Rank to = 0; to < 3; ++to) {
      if (from == to) continue;
      trace::LinkTotal& total = totals_[{from, to}];
      const bool is_slow = std::ranges::find(slow_, std::pair(from, to)) != slow_.end();
      const double rate = (is_slow ? kSlowRate : usual_) * std::exp2(uniform(-1.6, 1));
      const double bytes = std::max(0.0, moved_ - uniform(0, 0.5e6) - static_cast<double>(total.bytes));
      const auto messages = static_cast<int64_t>(bytes / 0.5e6) + 1;
      const double late = uniform(0, 1) < 0.05 ? 0.3 : 0;
      const double busy = bytes / rate + uniform(0, 0.04) * static_cast<double>(messages) + late;
      total += {.bytes = static_cast<int64_t>(bytes),
                .busy = static_cast<Nanos>(busy * kSecond),
                .pauses = messages};
      links.push_back({.with = to, .sent = total, .received = {}});
    }
    judge_.on_facts(from, links, now_);
    next_[static_cast<size_t>(from)] = now_ + static_cast<Nanos>(uniform(2, 3.3) * kSecond);
  }

  std::mt19937 random_;
  double usual_ = 12e6, moved_ = 0;
  std::vector<std::pair<Rank, Rank>> slow_;
  LinkJudge judge_{{0, 1, 2}};
  Nanos now_ = 100 * kSecond;
  std::array<Nanos, 3> next_{};
  trace::LinkTotals totals_;
};

constexpr unsigned kSeeds = 200;
// Half a window until it is noticed, the confirmation, and the time between two facts. Chance may hide it
// longer.
constexpr double kSoon = 12, kLatest = 30;

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

TEST(NoisyLinks, a_slow_port_is_named_soon_as_a_host_and_nothing_else_is) {
  std::vector<double> times;
  unsigned both = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    NoisyHosts hosts(seed);
    ASSERT_THAT(hosts.pass(20), IsEmpty()) << "seed " << seed;
    hosts.plant({{1, 0}, {1, 2}, {0, 1}, {2, 1}});
    const auto said = hosts.pass(120);
    ASSERT_THAT(said, SizeIs(1)) << "seed " << seed;
    EXPECT_TRUE(said[0].second.link.end == 1 && said[0].second.link.other == -1) << "seed " << seed;
    EXPECT_LT(times.emplace_back(said[0].first), kLatest) << "seed " << seed;
    both += said[0].second.link.sends && said[0].second.link.receives ? 1 : 0;
    hosts.plant({});
    const auto over = hosts.pass(60);
    ASSERT_THAT(over, SizeIs(1)) << "seed " << seed;
    EXPECT_TRUE(over[0].second.is_over && over[0].second.link.end == 1) << "seed " << seed;
  }
  EXPECT_LT(median_of(times), kSoon);
  EXPECT_GT(both, kSeeds * 9 / 10);  // otherwise the line names one direction only
}

TEST(NoisyLinks, a_slow_pair_is_named_soon_and_nothing_else_is) {
  std::vector<double> times;
  unsigned both = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    NoisyHosts hosts(seed);
    ASSERT_THAT(hosts.pass(20), IsEmpty()) << "seed " << seed;
    hosts.plant({{0, 2}, {2, 0}});
    const auto said = hosts.pass(120);
    ASSERT_THAT(said, SizeIs(1)) << "seed " << seed;
    const trace::SlowLink& link = said[0].second.link;
    EXPECT_EQ(std::pair(std::minmax({link.end, link.other})), std::pair(0, 2)) << "seed " << seed;
    EXPECT_LT(times.emplace_back(said[0].first), kLatest) << "seed " << seed;
    both += link.sends && link.receives ? 1 : 0;
    EXPECT_TRUE(link.end < link.other || !link.sends || !link.receives) << "seed " << seed;
  }
  EXPECT_LT(median_of(times), kSoon);
  EXPECT_GT(both, kSeeds * 98 / 100);  // otherwise the line names one direction only
}

TEST(NoisyLinks, equal_links_are_accused_of_nothing_in_ten_minutes) {
  for (unsigned seed = 0; seed < kSeeds / 2; ++seed)
    for (const bool are_slow : {false, true}) {
      NoisyHosts hosts(seed);
      if (are_slow) hosts.make_all_slow();
      ASSERT_THAT(hosts.pass(600), IsEmpty()) << "seed " << seed << (are_slow ? ", all slow" : "");
    }
}

}  // namespace
}  // namespace rueda::control::link_judge_test
