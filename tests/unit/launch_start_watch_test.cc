#include "launch/start_watch.h"

#include <gmock/gmock.h>

#include "rueda/base/release.h"

namespace rueda::launch::start_watch_test {
namespace {

using Next = StartWatch::Decision::Next;
using ::testing::HasSubstr;

Hello our_release() {
  Hello hello;
  hello.release = kRelease;
  return hello;
}

TEST(StartWatch, starts_once_every_agent_has_answered) {
  const Hello hello = our_release();
  StartWatch watch(30);
  std::vector<AgentState> agents = {{"a", &hello, {}}, {"b", nullptr, {}}};
  EXPECT_EQ(watch.decide(agents, kSecond).next, Next::kWait);
  agents[1].hello = &hello;
  EXPECT_EQ(watch.decide(agents, kSecond).next, Next::kStart);
}

TEST(StartWatch, names_the_missing_hosts_every_five_seconds) {
  const Hello hello = our_release();
  StartWatch watch(30);
  const std::vector<AgentState> agents = {{"a", nullptr, {}}, {"b", &hello, {}}, {"c", nullptr, {}}};
  EXPECT_EQ(watch.decide(agents, 4 * kSecond).notice, "");
  EXPECT_EQ(watch.decide(agents, 5 * kSecond).notice, "still waiting for 2 of 3 hosts after 5 s: a, c");
  EXPECT_EQ(watch.decide(agents, 6 * kSecond).notice, "");
  EXPECT_NE(watch.decide(agents, 10 * kSecond).notice, "");
}

TEST(StartWatch, fails_when_the_time_is_over_and_says_what_to_try) {
  StartWatch watch(30);
  const std::vector<AgentState> agents = {{"a", nullptr, {}}, {"b", nullptr, {}}};
  const StartWatch::Decision decision = watch.decide(agents, 30 * kSecond);
  EXPECT_EQ(decision.next, Next::kFail);
  EXPECT_EQ(decision.why.code, Code::kTimeout);
  EXPECT_THAT(decision.why.why, HasSubstr("no answer within 30 s from the agent of a, b"));
  EXPECT_THAT(decision.why.why, HasSubstr("`ssh a true`"));
}

TEST(StartWatch, agent_that_ended_fails_the_start_at_once) {
  const Hello hello = our_release();
  StartWatch watch(30);
  const std::vector<AgentState> agents = {{"a", &hello, {}}, {"b", nullptr, "ssh was killed by SIGKILL"}};
  const StartWatch::Decision decision = watch.decide(agents, 0);
  EXPECT_EQ(decision.next, Next::kFail);
  EXPECT_EQ(decision.why.why, "cannot start the job: the agent of b has ended: ssh was killed by SIGKILL");
}

TEST(StartWatch, all_hosts_that_cannot_be_reached_are_named) {
  const Hello hello = our_release();
  StartWatch watch(30);
  std::vector<AgentState> agents = {
      {"a", &hello, {}}, {"b", nullptr, "no route"}, {"c", nullptr, {}}, {"d", nullptr, {}}};
  EXPECT_EQ(watch.decide(agents, kSecond).next, Next::kWait) << "c and d may fail as well";
  agents[2].lost_because = "refused";
  EXPECT_EQ(watch.decide(agents, 2 * kSecond).next, Next::kWait);
  StartWatch::Decision decision = watch.decide(agents, 3 * kSecond);
  EXPECT_EQ(decision.next, Next::kFail) << "but not for long";
  EXPECT_EQ(
      decision.why.why,
      "cannot start the job, because 2 of 4 hosts cannot take part: the agent of b has ended: no route; "
      "the agent of c has ended: refused; no answer yet from the agent of d");
  agents[3].hello = &hello;
  decision = watch.decide(agents, 2 * kSecond);
  EXPECT_EQ(decision.next, Next::kFail) << "nobody is awaited any more";
}

TEST(StartWatch, another_release_is_refused_with_the_hosts_that_have_it) {
  Hello hello = our_release();
  hello.release = "0.0.1";
  StartWatch watch(30);
  const std::vector<AgentState> agents = {{"a", &hello, {}}, {"b", &hello, {}}};
  const StartWatch::Decision decision = watch.decide(agents, 0);
  EXPECT_EQ(decision.why.code, Code::kPermissionDenied);
  EXPECT_THAT(decision.why.why, HasSubstr("2 hosts (a, b): … runs release 0.0.1"));
}

TEST(StartWatch, hosts_behind_one_that_has_not_answered_are_counted_and_not_named) {
  const Hello hello = our_release();
  StartWatch watch(30);
  std::vector<AgentState> agents = {{"a", &hello, {}}, {"b", nullptr, {}}, {"c", nullptr, {}}};
  agents[1].started_by = "a";
  agents[2].is_begun = false;
  EXPECT_EQ(watch.decide(agents, 5 * kSecond).notice, "still waiting for 2 of 3 hosts after 5 s: b");
  const StartWatch::Decision decision = watch.decide(agents, 30 * kSecond);
  EXPECT_THAT(decision.why.why, HasSubstr("from the agent of b; check that `ssh b true` works without asking "
                                          "anything on a, or raise"));
  agents[1].hello = &hello;  // c follows
  EXPECT_EQ(watch.decide(agents, kSecond).next, Next::kWait);
}

TEST(StartWatch, a_host_that_had_tried_before_us_is_named) {
  StartWatch watch(30);
  std::vector<AgentState> agents = {{"b", nullptr, "ssh could not connect"}};
  agents[0].tried_by = "a";
  agents[0].tried_why = "ssh from a could not connect";
  EXPECT_EQ(watch.decide(agents, 0).why.why,
            "cannot start the job: the agent of b has ended: ssh could not connect (a could not start it "
            "either: ssh from a could not connect)");
}

}  // namespace
}  // namespace rueda::launch::start_watch_test
