// Which ranks of a host gather from which, from the NUMA node of each.
#include "rueda/backend/local/teams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace rueda::backend::teams_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<int32_t> nodes_of(size_t members, size_t nodes) {
  std::vector<int32_t> node_of;
  for (size_t member = 0; member < members; ++member)
    node_of.push_back(static_cast<int32_t>(member * nodes / members));
  return node_of;
}

TEST(Teams, up_to_64_members_are_one_team_wherever_they_run) {
  EXPECT_THAT(make_teams(nodes_of(64, 4)), ElementsAre(SizeIs(64)));
  EXPECT_THAT(make_teams(nodes_of(2, 2)), ElementsAre(ElementsAre(0, 1)));
}

TEST(Teams, more_are_grouped_by_numa_node) {
  const auto teams = make_teams(nodes_of(96, 2));
  ASSERT_THAT(teams, ElementsAre(SizeIs(48), SizeIs(48)));
  EXPECT_EQ(teams[0].front(), 0);
  EXPECT_EQ(teams[1].front(), 48);
}

TEST(Teams, ranks_that_alternate_between_nodes_still_share_a_team_with_their_node) {
  std::vector<int32_t> node_of;
  for (int32_t member = 0; member < 80; ++member) node_of.push_back(member % 2 == 0 ? 7 : 3);
  const auto teams = make_teams(node_of);
  ASSERT_THAT(teams, ElementsAre(SizeIs(40), SizeIs(40)));
  EXPECT_EQ(teams[0].front(), 0) << "the team of member 0 comes first, whatever its node is called";
  for (const Rank member : teams[0]) EXPECT_EQ(member % 2, 0);
}

TEST(Teams, a_node_with_more_than_64_members_makes_teams_of_equal_size) {
  EXPECT_THAT(make_teams(nodes_of(256, 1)), ElementsAre(SizeIs(64), SizeIs(64), SizeIs(64), SizeIs(64)));
  EXPECT_THAT(make_teams(nodes_of(65, 1)), ElementsAre(SizeIs(32), SizeIs(33)));
}

TEST(Teams, every_member_but_the_first_tells_exactly_one_that_waits_for_it) {
  std::mt19937_64 random(5);
  for (const size_t size : {1u, 2u, 9u, 64u, 65u, 130u, 300u}) {
    std::vector<int32_t> node_of;
    for (size_t member = 0; member < size; ++member)
      node_of.push_back(static_cast<int32_t>(random() % 3) - 1);
    const auto teams = make_teams(node_of);
    std::set<Rank> seen;
    for (Rank member = 0; member < static_cast<Rank>(size); ++member) {
      const TeamPlace place = place_in(teams, member);
      EXPECT_EQ(teams[place.team][place.place], member);
      EXPECT_EQ(place.parent < 0, member == 0);
      EXPECT_LE(teams[place.team].size(), kTeamRanks);
      for (const Rank child : place.children) {
        EXPECT_TRUE(seen.insert(child).second) << "member " << child << " of " << size << " has two parents";
        EXPECT_EQ(place_in(teams, child).parent, member);
      }
    }
    EXPECT_THAT(seen, SizeIs(size - 1));
  }
}

TEST(Teams, the_leader_of_the_first_team_waits_for_its_team_and_the_other_leaders) {
  const auto teams = make_teams(nodes_of(130, 2));
  ASSERT_THAT(teams, SizeIs(4));
  EXPECT_THAT(place_in(teams, 0).children, SizeIs(teams[0].size() - 1 + 3));
  EXPECT_EQ(place_in(teams, 0).children.back(), teams[3].front());
  EXPECT_THAT(place_in(teams, 1).children, IsEmpty());
}

}  // namespace
}  // namespace rueda::backend::teams_test
