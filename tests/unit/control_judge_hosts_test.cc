// What is said about hosts that acknowledge nothing, with a clock of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/control/judge.h"

namespace rueda::control::judge_hosts_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr Nanos kBegin = 100 * kSecond, kLimit = 5 * kSecond;

std::string who(Rank rank) { return "rank " + std::to_string(rank) + " (host b)"; }

// Ranks 0 and 1 are on one host, 2 and 3 on another. Ranks 0 and 1 wait for the others.
class JudgeOfTwoHosts : public testing::Test {
 protected:
  // Time passes in quarters of a second. cut: the network stack of rank 0 counts for how long the other host
  // has acknowledged nothing, and its ranks cannot be heard.
  std::vector<Verdict> pass(Nanos duration, bool is_cut) {
    std::vector<Verdict> said;
    for (Nanos passed = 0; passed < duration; passed += kSecond / 4) {
      now_ += kSecond / 4;
      Facts mine;
      if (is_cut && passed >= kSecond) mine.unreached = {{.of = 2, .age = passed}, {.of = 3, .age = passed}};
      judge_.on_facts(0, mine, now_);
      for (Rank rank = 1; rank < 4; ++rank) {
        if (rank == silent_ || (is_cut && rank > 1)) continue;
        judge_.heard(rank, now_);
        judge_.on_facts(rank, {}, now_);
      }
      wait_.age += kSecond / 4;
      const std::vector<StalledTensor> waits =
          is_waiting_ ? std::vector{wait_} : std::vector<StalledTensor>();
      for (Verdict& verdict : judge_.tick(waits, now_)) said.push_back(std::move(verdict));
    }
    return said;
  }

  Judge judge_{{.me = 0, .ranks = 4, .limit = kLimit, .hosts = {0, 0, 2, 2}}, kBegin};
  Nanos now_ = kBegin;
  bool is_waiting_ = true;
  StalledTensor wait_{.name = "x", .operation = "ALLREDUCE", .missing = {2, 3}, .waiting = {0, 1}};
  Rank silent_ = -1;
};

TEST_F(JudgeOfTwoHosts, a_cut_cable_is_said_after_five_seconds_and_blames_no_process) {
  pass(kSecond, false);
  const auto said = pass(25 * kSecond, true);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kUnreachable);
  EXPECT_EQ(said[0].rank, 2);
  EXPECT_GE(said[0].age, kLimit);
  EXPECT_LE(said[0].age, kLimit + kSecond);
  EXPECT_THAT(
      verdict_line(said[0], who),
      HasSubstr("Verdict: unreachable: rank 2 (host b): its host has acknowledged nothing for 5.0 s: it "
                "is down, or the network to it is cut; training goes on if this ends before "
                "RUEDA_PEER_TIMEOUT_SECONDS have passed."));
}

TEST_F(JudgeOfTwoHosts, what_the_agent_of_a_cut_host_tells_is_said_as_well) {
  judge_.on_agents([](Rank rank) { return rank == 2 ? Agent::kAnswers : Agent::kUnknown; });
  const auto said = pass(10 * kSecond, true);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(verdict_line(said[0], who), HasSubstr("; the agent of that host answers rueda run, so "));
}

TEST_F(JudgeOfTwoHosts, the_end_of_an_outage_is_said_and_nobody_is_silent_or_late_for_it) {
  pass(kSecond, false);
  pass(20 * kSecond, true);
  silent_ = 2;  // the network is back, and this host has noticed; the other one tries again only later
  auto said = pass(15 * kSecond, false);
  silent_ = -1;
  is_waiting_ = false;
  for (Verdict& verdict : pass(20 * kSecond, false)) said.push_back(std::move(verdict));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(verdict_line(said[0], who),
              HasSubstr("Verdict: unreachable: rank 2 (host b): the network is back after 20"));
  for (const Verdict& verdict : said) EXPECT_NE(verdict.fault, Fault::kSilent);
}

// When the link is back, a rank at its end may be seen between two calls before those that waited go on.
TEST(JudgeOfThreeHosts, a_rank_at_the_end_of_a_cut_link_is_not_called_late_when_the_link_is_back) {
  Judge judge({.me = 0, .ranks = 3, .limit = kLimit, .hosts = {0, 1, 2}}, kBegin);
  std::vector<Verdict> said;
  for (Nanos passed = 0; passed < 12 * kSecond; passed += kSecond / 4) {
    const bool is_cut = passed >= 2 * kSecond && passed < 9 * kSecond;
    for (Rank rank = 0; rank < 3; ++rank) {
      Facts facts;
      facts.use.at = passed;
      facts.use.cpu = passed / 2;
      facts.is_blocked = is_cut;
      if (is_cut && rank > 0) facts.unreached = {{.of = 3 - rank, .age = passed - kSecond}};
      judge.heard(rank, kBegin + passed);
      judge.on_facts(rank, facts, kBegin + passed);
    }
    const StalledTensor wait{
        .name = "x", .operation = "ALLREDUCE", .age = passed - kSecond, .missing = {1}, .waiting = {0, 2}};
    for (Verdict& verdict : judge.tick({wait}, kBegin + passed)) said.push_back(std::move(verdict));
  }
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_EQ(said[0].fault, Fault::kCutLink);
  EXPECT_EQ(said[1].fault, Fault::kCutLink);
  EXPECT_TRUE(said[1].is_over);
}

TEST_F(JudgeOfTwoHosts, a_process_that_does_not_answer_on_a_host_that_does_is_not_unreachable) {
  silent_ = 2;
  is_waiting_ = false;
  const auto said = pass(12 * kSecond, false);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kSilent);
  EXPECT_THAT(verdict_line(said[0], who), HasSubstr("although its host does"));
}

TEST(JudgeOfRankTwo, the_first_rank_of_another_host_says_that_rank_0_cannot_be_reached) {
  Judge judge({.me = 2, .ranks = 4, .limit = kLimit, .judges_first = true}, kBegin);
  std::vector<Verdict> said;
  for (Nanos cut = kSecond; cut < 20 * kSecond; cut += kSecond / 2) {
    judge.on_unreached({{.of = 0, .age = cut}, {.of = 1, .age = cut}}, kBegin + cut);
    for (Verdict& verdict : judge.tick({}, kBegin + cut)) said.push_back(std::move(verdict));
  }
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kUnreachable);
  EXPECT_EQ(said[0].rank, 0);
}

TEST(JudgeOfRankTwo, a_rank_that_hears_of_rank_0_does_not_call_its_host_unreachable) {
  Judge judge({.me = 2, .ranks = 4, .limit = kLimit, .judges_first = true}, kBegin);
  for (Nanos cut = kSecond; cut < 20 * kSecond; cut += kSecond / 2) {
    judge.heard(0, kBegin + cut);
    judge.on_unreached({{.of = 0, .age = cut}}, kBegin + cut);
    EXPECT_TRUE(judge.tick({}, kBegin + cut).empty());
  }
}

}  // namespace
}  // namespace rueda::control::judge_hosts_test
