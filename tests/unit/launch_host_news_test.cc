// What the ranks are told about processes of other hosts.
#include "launch/host_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::launch::host_news_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Bytes held(Rank rank) {
  return status::encode({.held = {{.rank = rank, .state = ProcessState::kStopped}}, .without_agent = {}});
}

class TwoAgents : public testing::Test {
 protected:
  HostNews news_;
  std::vector<HostNews::Host> hosts_ = {{.name = "a", .ranks = {0, 1}}, {.name = "b", .ranks = {2}}};
};

TEST_F(TwoAgents, what_an_agent_sees_is_told_until_it_is_over) {
  ASSERT_TRUE(news_.on_held("b", {2}, held(2)).is_ok());
  const status::JobNews told = news_.news(hosts_);
  ASSERT_THAT(told.held, testing::SizeIs(1));
  EXPECT_EQ(told.held[0].rank, 2);
  EXPECT_THAT(told.without_agent, IsEmpty());
  ASSERT_TRUE(news_.on_held("b", {2}, status::encode(status::JobNews())).is_ok());
  EXPECT_EQ(news_.news(hosts_), status::JobNews());
}

TEST_F(TwoAgents, an_agent_that_is_silent_says_nothing_about_its_processes) {
  ASSERT_TRUE(news_.on_held("a", {0, 1}, held(1)).is_ok());
  hosts_[0].is_silent = true;
  const status::JobNews told = news_.news(hosts_);
  EXPECT_THAT(told.held, IsEmpty());
  EXPECT_THAT(told.without_agent, ElementsAre(0, 1));
}

TEST_F(TwoAgents, an_agent_speaks_of_its_own_ranks_only) {
  EXPECT_FALSE(news_.on_held("b", {2}, held(0)).is_ok());
  EXPECT_FALSE(news_.on_held("b", {2}, std::span<const std::byte>()).is_ok());
  EXPECT_EQ(news_.news(hosts_), status::JobNews());
}

}  // namespace
}  // namespace rueda::launch::host_news_test
