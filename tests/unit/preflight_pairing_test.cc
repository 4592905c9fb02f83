#include "preflight/pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace rueda::preflight::pairing_test {
namespace {

TEST(PreflightPairing, every_pair_meets_once_and_nobody_is_in_two_places) {
  for (int hosts = 0; hosts <= 33; ++hosts) {
    const std::vector<Round> rounds = tournament(hosts);
    EXPECT_EQ(std::ssize(rounds), hosts < 2 ? 0 : hosts - 1 + hosts % 2) << hosts;
    std::set<Pair> met;
    for (const Round& round : rounds) {
      std::set<int> busy;
      for (const Pair& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_LT(pair.second, hosts);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second) << hosts;
        EXPECT_TRUE(met.insert(pair).second) << hosts;
      }
    }
    EXPECT_EQ(std::ssize(met), hosts * (hosts - 1) / 2) << hosts;
  }
}

TEST(PreflightPairing, a_sample_still_has_every_host_in_every_round) {
  const int hosts = 200;
  EXPECT_EQ(default_rounds(kAllPairs), kAllPairs - 1);
  EXPECT_EQ(default_rounds(hosts), 16);  // 2 log2(200)
  const std::vector<Round> chosen = sample(tournament(hosts), default_rounds(hosts));
  EXPECT_EQ(chosen.size(), 16U);
  EXPECT_EQ(std::set<Round>(chosen.begin(), chosen.end()).size(), 16U);
  for (const Round& round : chosen) EXPECT_EQ(round.size(), 100U);
  EXPECT_EQ(sample(tournament(5), 99), tournament(5));
}

TEST(PreflightPairing, packed_rounds_are_disjoint_and_bounded) {
  const std::vector<Round> rounds = pack({{0, 1}, {0, 2}, {2, 3}, {0, 3}, {1, 2}}, 2);
  EXPECT_THAT(rounds, testing::ElementsAre(Round{{0, 1}, {2, 3}}, Round{{0, 2}}));
  EXPECT_EQ(partner_in(rounds[0], 3), 2);
  EXPECT_EQ(partner_in(rounds[1], 1), -1);
}

}  // namespace
}  // namespace rueda::preflight::pairing_test
