// Who is above whom, and which pairs init connects: both ends of a pair say the same.
#include "rueda/runtime/hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Hierarchy, on_one_host_it_is_a_star) {
  const std::vector<Hierarchy> made = of("aaaa");
  EXPECT_TRUE(made[0].is_root());
  EXPECT_EQ(made[0].parent(), -1);
  EXPECT_THAT(made[0].children(), ElementsAre(1, 2, 3));
  for (const Rank rank : {1, 2, 3}) {
    const Hierarchy& one = made[static_cast<size_t>(rank)];
    EXPECT_EQ(one.parent(), one.root());
    EXPECT_THAT(one.children(), IsEmpty());
    EXPECT_FALSE(one.is_root());
  }
}

TEST(Hierarchy, the_lowest_rank_of_a_host_stands_between_its_others_and_the_root) {
  const std::vector<Hierarchy> made = of("abbab");
  EXPECT_THAT(made[0].children(), ElementsAre(1, 3));
  EXPECT_THAT(made[1].children(), ElementsAre(2, 4));
  EXPECT_EQ(made[4].parent(), 1);
  EXPECT_EQ(made[0].below(1).ranks(), (std::vector<Rank>{1, 2, 4}));
  EXPECT_EQ(made[1].below().ranks(), (std::vector<Rank>{1, 2, 4}));
  EXPECT_TRUE(made[0].is_below(4, 1));
  EXPECT_FALSE(made[0].is_below(3, 1));
  EXPECT_EQ(made[0].way_to(4), 1);
  EXPECT_EQ(made[1].way_to(4), 4);
  EXPECT_EQ(made[4].way_to(3), 1);
}

TEST(Hierarchy, where_each_host_has_one_rank_it_is_a_star_up_to_the_fan_out) {
  std::vector<PeerInfo> all(Hierarchy::kFanOut + 2);
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank].host_key = std::to_string(rank);
  const Hierarchy root(0, all);
  EXPECT_THAT(root.children(), testing::SizeIs(Hierarchy::kFanOut));
  EXPECT_EQ(root.parent_of(static_cast<Rank>(all.size()) - 1), 1);
}

TEST(Hierarchy, of_2048_hosts_no_rank_has_many_children_and_three_levels_are_above_the_lowest) {
  std::vector<PeerInfo> all(2'048 * 8);
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank].host_key = std::to_string(rank / 8);
  const Hierarchy root(0, all);
  Rank counted = 1;
  for (const Rank child : root.children()) counted += root.below(child).count();
  EXPECT_EQ(counted, 16'384);
  EXPECT_THAT(root.children(), testing::SizeIs(Hierarchy::kFanOut + 7));
  int deepest = 0;
  for (Rank rank = 0; rank < 16'384; ++rank) {
    int depth = 0;
    for (Rank at = root.parent_of(rank); at >= 0; at = root.parent_of(at)) ++depth;
    deepest = std::max(deepest, depth);
  }
  EXPECT_EQ(deepest, 4);
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
