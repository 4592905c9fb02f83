#include "launch/agent_tree.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace rueda::launch::agent_tree_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<bool> hosts(size_t count) { return std::vector<bool>(count, true); }

int depth_of(const std::vector<int>& parents, size_t host) {
  int depth = 1;
  for (int above = parents[host]; above >= 0; above = parents[static_cast<size_t>(above)]) ++depth;
  return depth;
}

TEST(AgentTree, up_to_64_hosts_are_reached_from_the_launcher) {
  EXPECT_THAT(plan_agent_tree(hosts(64), 0), Each(-1));
  EXPECT_THAT(plan_agent_tree({}, 0), ElementsAre());
}

TEST(AgentTree, a_65th_host_is_started_by_the_first) {
  const std::vector<int> parents = plan_agent_tree(hosts(65), 0);
  EXPECT_EQ(std::ranges::count(parents, -1), kUsualFanOut);
  EXPECT_EQ(parents[32], 0);
  EXPECT_EQ(parents[33], 1);
  EXPECT_EQ(parents[64], 0);
}

TEST(AgentTree, a_given_fan_out_holds_in_small_jobs_too) {
  EXPECT_THAT(plan_agent_tree(hosts(7), 2), ElementsAre(-1, -1, 0, 1, 0, 1, 2));
  EXPECT_THAT(plan_agent_tree(hosts(3), 5), Each(-1));
}

TEST(AgentTree, hosts_that_are_not_reached_through_ssh_stay_outside) {
  EXPECT_THAT(plan_agent_tree({false, true, true, false, true, true}, 1), ElementsAre(-1, -1, 1, -1, 2, 4));
}

TEST(AgentTree, nobody_starts_more_than_the_fan_out_and_parents_come_first) {
  for (const int fan_out : {2, 3, 16, 32})
    for (size_t count = 1; count < 700; count += 7) {
      const std::vector<int> parents = plan_agent_tree(hosts(count), fan_out);
      std::map<int, int> children;
      for (size_t host = 0; host < count; ++host) {
        EXPECT_LT(parents[host], static_cast<int>(host));
        ++children[parents[host]];
      }
      for (const auto& [parent, started] : children) EXPECT_LE(started, fan_out) << parent;
    }
}

TEST(AgentTree, depth_grows_with_the_logarithm) {
  const auto deepest = [](size_t count) { return depth_of(plan_agent_tree(hosts(count), 0), count - 1); };
  EXPECT_EQ(deepest(64), 1);
  EXPECT_EQ(deepest(1'056), 2);
  EXPECT_EQ(deepest(1'057), 3);
  EXPECT_EQ(deepest(33'824), 3);
}

TEST(AgentTree, children_are_spread_evenly) {
  std::map<int, int> children;
  for (const int parent : plan_agent_tree(hosts(32 + 70), 0)) ++children[parent];
  for (const auto& [parent, started] : children) EXPECT_LE(started, parent == -1 ? 32 : 3);
}

}  // namespace
}  // namespace rueda::launch::agent_tree_test
