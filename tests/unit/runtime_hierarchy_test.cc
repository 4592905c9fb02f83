// Who is above whom, and which pairs init connects: both ends of a pair say the same.
#include "rueda/runtime/hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime_links_world.h"

namespace rueda::runtime::hierarchy_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Hierarchy> of(const std::string& hosts) {
  const std::vector<PeerInfo> all = world(hosts, {"far"});
  std::vector<Hierarchy> made;
  for (Rank rank = 0; rank < static_cast<Rank>(hosts.size()); ++rank) made.emplace_back(rank, all);
  return made;
}

TEST(Hierarchy, both_ranks_of_a_pair_agree_about_what_connects_them) {
  for (const std::string hosts : {"a", "aa", "ab", "aabb", "abab", "abbb", "aaab", "abcabc"}) {
    const std::vector<Hierarchy> made = of(hosts);
    for (size_t one = 0; one < made.size(); ++one)
      for (size_t other = 0; other < made.size(); ++other) {
        const auto a = static_cast<Rank>(one), b = static_cast<Rank>(other);
        EXPECT_EQ(made[one].is_neighbour(b), made[other].is_neighbour(a)) << hosts << a << b;
        EXPECT_EQ(made[one].is_met(b), made[other].is_met(a)) << hosts << a << b;
      }
  }
}

TEST(Hierarchy, every_rank_but_the_root_has_a_parent_of_which_it_is_a_child) {
  const std::vector<Hierarchy> made = of("abab");
  EXPECT_TRUE(made[0].is_root());
  EXPECT_EQ(made[0].parent(), -1);
  EXPECT_THAT(made[0].children(), ElementsAre(1, 2, 3));
  for (const Rank rank : {1, 2, 3}) {
    EXPECT_EQ(made[static_cast<size_t>(rank)].parent(), made[0].root());
    EXPECT_THAT(made[static_cast<size_t>(rank)].children(), IsEmpty());
    EXPECT_FALSE(made[static_cast<size_t>(rank)].is_root());
  }
}

TEST(Hierarchy, the_root_measures_with_the_first_rank_of_its_host_and_the_first_of_another) {
  EXPECT_EQ(of("abba")[2].local_probe(), 3);
  EXPECT_EQ(of("abba")[2].remote_probe(), 1);
  EXPECT_EQ(of("aa")[0].remote_probe(), -1);
  EXPECT_EQ(of("ab")[0].local_probe(), -1);
  EXPECT_EQ(of("a")[0].local_probe(), -1);
}

TEST(Hierarchy, the_lowest_ranks_of_the_hosts_meet_during_init_and_others_do_not) {
  const std::vector<Hierarchy> made = of("aabbac");
  EXPECT_THAT(made[4].leaders(), ElementsAre(0, 2, 5));
  EXPECT_TRUE(made[2].is_met(5));
  EXPECT_FALSE(made[3].is_met(5));
  EXPECT_FALSE(made[2].is_met(3)) << "of one host";
  EXPECT_TRUE(made[0].is_met(1)) << "it is measured";
  EXPECT_FALSE(made[0].is_met(4));
}

TEST(Hierarchy, of_very_many_hosts_only_the_root_and_the_first_of_another_host_meet) {
  std::vector<PeerInfo> all(Hierarchy::kMostMetHosts + 1);
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank].host_key = std::to_string(rank);
  EXPECT_TRUE(Hierarchy(0, all).is_met(1));
  EXPECT_FALSE(Hierarchy(1, all).is_met(2));
  all.pop_back();
  EXPECT_TRUE(Hierarchy(1, all).is_met(2));
}

}  // namespace
}  // namespace rueda::runtime::hierarchy_test
