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

TEST(FirstHosts, tells_what_is_missing_at_once_and_then_now_and_then) {
  const ElasticOptions options{.least = 2, .timeout_s = 20, .discovery_script = "./hosts.sh"};
  FirstHosts first(options, 3);
  const auto said = [&](const Result<std::vector<HostSlots>>& found, int second) {
    const FirstHosts::Answer answer = first.hear(found, second * kSecond);
    EXPECT_TRUE(answer.end.is_ok() && !answer.is_enough);
    return answer.say;
  };
  const std::vector<HostSlots> one{{"a", 1}};
  EXPECT_THAT(said(one, 0),
              ElementsAre("the discovery script ./hosts.sh names 1 slot, and the job starts when "
                          "there are 3 (-np); it has waited for 0 s of 20"));
  EXPECT_THAT(said(one, 1), IsEmpty());
  const Status failed(Code::kUnavailable, "it failed");
  EXPECT_THAT(said(failed, 2), ElementsAre("it failed; the job waits on"));
  EXPECT_THAT(said(failed, 3), IsEmpty());
  EXPECT_THAT(said(one, 6), ElementsAre(HasSubstr("it has waited for 6 s of 20")));
  const FirstHosts::Answer end = first.hear(one, 20 * kSecond);
  EXPECT_THAT(end.end.why, HasSubstr("names 1 slot, and there must be enough resources to run at least 3"));
}

TEST(FirstHosts, starts_with_enough_slots_and_gives_up_if_the_first_run_fails) {
  const ElasticOptions options{.least = 2, .discovery_script = "./hosts.sh"};
  EXPECT_TRUE(FirstHosts(options, 3).hear(std::vector<HostSlots>{{"a", 1}, {"b", 2}}, 0).is_enough);
  EXPECT_EQ(FirstHosts(options, 3).hear(Status(Code::kUnavailable, "no"), 0).end.why, "no");
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
