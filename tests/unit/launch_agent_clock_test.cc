#include "launch/agent_clock.h"

#include <gtest/gtest.h>

namespace rueda::launch::agent_clock_test {
namespace {

TEST(AgentClock, a_time_is_left_as_it_is_until_something_has_arrived) {
  EXPECT_EQ(AgentClock().to_ours(5 * kSecond), 5 * kSecond);
}

TEST(AgentClock, the_message_that_travelled_fastest_gives_the_offset) {
  AgentClock clock;
  clock.note(100, 1030);
  clock.note(200, 1105);
  clock.note(300, 1250);
  EXPECT_EQ(clock.to_ours(400), 1305);
}

}  // namespace
}  // namespace rueda::launch::agent_clock_test
