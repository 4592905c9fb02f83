#include "launch/host_discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::launch::host_discovery_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<HostSlots> hosts(std::string_view text, int slots = 3) {
  return parse_discovered(text, slots).value();
}

TEST(HostDiscovery, takes_lines_with_and_without_slots) {
  EXPECT_THAT(hosts("a:2\n\n  b \r\n[::1]:4\n[::2]\n"),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 3}, HostSlots{"::1", 4}, HostSlots{"::2", 3}));
  EXPECT_THAT(hosts(""), IsEmpty());
  EXPECT_THAT(hosts("\n \n"), IsEmpty());
  EXPECT_THAT(hosts("a"), ElementsAre(HostSlots{"a", 3}));
}

TEST(HostDiscovery, refuses_what_is_no_host) {
  for (const char* text :
       {"a b\n", "a:2,b:2\n", "a:x\n", "a:0\n", "a:-1\n", ":2\n", "Traceback (most recent call last):\n"})
    EXPECT_FALSE(parse_discovered(text, 1).is_ok()) << text;
}

TEST(HostDiscovery, runs_a_program_and_tells_how_it_failed) {
  EXPECT_THAT(HostDiscovery("echo a:2; echo b", 4).run_once().value(),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 4}));
  const Status failed = HostDiscovery("echo a; exit 3", 1).run_once().status();
  EXPECT_EQ(failed.why, "Failed to execute discovery script: echo a; exit 3. Exit code: 3");
  EXPECT_THAT(HostDiscovery("/does/not/exist", 1).run_once().status().why, HasSubstr("Exit code: 127"));
  EXPECT_THAT(HostDiscovery("kill -9 $$", 1).run_once().status().why, HasSubstr("Exit code: -1"));
  EXPECT_THAT(
      HostDiscovery("echo what is this", 1).run_once().status().why,
      HasSubstr("the output of the discovery script echo what is this is refused: it printed \"what is"));
}

TEST(HostDiscovery, a_program_that_hangs_is_given_up) {
  HostDiscovery discovery("sleep 1000", 1);
  EXPECT_FALSE(discovery.tick(kSecond)) << "it starts";
  EXPECT_FALSE(discovery.tick(kSecond + kDiscoveryTime - 1));
  const auto result = discovery.tick(kSecond + kDiscoveryTime);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->status().why, HasSubstr("sleep 1000 did not end within 10 s"));
  EXPECT_FALSE(discovery.tick(kSecond + kDiscoveryTime)) << "it is started again";
}

}  // namespace
}  // namespace rueda::launch::host_discovery_test
