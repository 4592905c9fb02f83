#include "preflight/reachability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::preflight::reachability_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// All pairs; those of hosts that are down do not connect, and neither do the broken ones.
std::vector<TriedPair> all_pairs(int hosts, const std::vector<int>& down,
                                 const std::vector<std::pair<int, int>>& broken = {}) {
  std::vector<TriedPair> pairs;
  const auto is_down = [&](int host) { return std::ranges::find(down, host) != down.end(); };
  for (int a = 0; a < hosts; ++a)
    for (int b = a + 1; b < hosts; ++b) {
      const bool is_broken = std::ranges::find(broken, std::pair(a, b)) != broken.end();
      pairs.push_back({a, b, !is_down(a) && !is_down(b) && !is_broken});
    }
  return pairs;
}

TEST(PreflightReach, hosts_that_connect_to_nobody_are_cut_wherever_they_are) {
  for (const int host : {0, 1, 2}) {
    const Reachability reachability = judge_reachability(3, all_pairs(3, {host}));
    EXPECT_THAT(reachability.cut, ElementsAre(host));
    EXPECT_THAT(reachability.left_out, ElementsAre(host));
    EXPECT_THAT(reachability.broken, IsEmpty());
  }
  EXPECT_THAT(judge_reachability(5, all_pairs(5, {0, 3})).cut, ElementsAre(0, 3));
}

TEST(PreflightReach, a_pair_that_does_not_connect_is_a_link_where_both_connect_to_others) {
  const Reachability reachability = judge_reachability(4, all_pairs(4, {}, {{1, 3}}));
  EXPECT_THAT(reachability.cut, IsEmpty());
  EXPECT_THAT(reachability.broken, ElementsAre(Pair(1, 3)));
  EXPECT_THAT(reachability.left_out, ElementsAre(3));
  const Reachability star = judge_reachability(5, all_pairs(5, {4}, {{1, 2}, {1, 3}}));
  EXPECT_THAT(star.cut, ElementsAre(4));
  EXPECT_THAT(star.broken, ElementsAre(Pair(1, 2), Pair(1, 3)));
  EXPECT_THAT(star.left_out, ElementsAre(1, 4)) << "the host with more of them";
}

TEST(PreflightReach, nobody_is_blamed_where_no_pair_or_every_pair_connects) {
  for (const auto& pairs : {all_pairs(3, {0, 1, 2}), all_pairs(3, {}), std::vector<TriedPair>{}}) {
    const Reachability reachability = judge_reachability(3, pairs);
    EXPECT_THAT(reachability.cut, IsEmpty());
    EXPECT_THAT(reachability.broken, IsEmpty());
    EXPECT_THAT(reachability.left_out, IsEmpty());
  }
}

}  // namespace
}  // namespace rueda::preflight::reachability_test
