#include "launch/stop_plan.h"

#include <gmock/gmock.h>

#include <csignal>

namespace rueda::launch::stop_plan_test {
namespace {

using Answer = StopPlan::Answer;
using Step = StopPlan::Step;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Nanos kGrace = 5 * kSecond;
constexpr Nanos kNow = 100 * kSecond;

TEST(StopPlan, failure_stops_the_others_then_kills_then_forces_then_gives_up) {
  StopPlan plan(kGrace);
  EXPECT_EQ(plan.next(), 0);
  EXPECT_TRUE(plan.on_failure(kNow));
  const Nanos stop = kNow + kOthersGrace;
  EXPECT_EQ(plan.next(), stop);
  EXPECT_THAT(plan.due(stop - 1), IsEmpty());
  EXPECT_THAT(plan.due(stop), ElementsAre(Step::kStop));
  const Nanos kill = stop + kGrace + kSecond;
  EXPECT_EQ(plan.next(), kill) << "the agents kill by themselves a second before";
  EXPECT_FALSE(plan.is_killing());
  EXPECT_THAT(plan.due(kill), ElementsAre(Step::kKill));
  EXPECT_TRUE(plan.is_killing());
  EXPECT_THAT(plan.due(kill + 5 * kSecond), ElementsAre(Step::kForce));
  EXPECT_THAT(plan.due(kill + 10 * kSecond), ElementsAre(Step::kForce, Step::kGiveUp));
  EXPECT_THAT(plan.due(kill + 15 * kSecond), ElementsAre(Step::kForce)) << "again and again";
}

TEST(StopPlan, later_failures_do_not_put_the_stop_off) {
  StopPlan plan(kGrace);
  EXPECT_TRUE(plan.on_failure(kNow));
  EXPECT_FALSE(plan.on_failure(kNow + kSecond));
  EXPECT_EQ(plan.next(), kNow + kOthersGrace);
  EXPECT_THAT(plan.due(kNow + kOthersGrace), ElementsAre(Step::kStop));
  EXPECT_FALSE(plan.on_failure(kNow + kOthersGrace + 1));
}

TEST(StopPlan, a_loop_that_slept_past_several_steps_takes_them_one_by_one) {
  StopPlan plan(kGrace);
  plan.on_failure(kNow);
  EXPECT_THAT(plan.due(kNow + kSecond * 1000), ElementsAre(Step::kStop)) << "the ranks still get their grace";
}

TEST(StopPlan, ctrl_c_kills_after_the_grace_and_sends_no_sigterm) {
  StopPlan plan(kGrace);
  EXPECT_EQ(plan.on_signal(SIGINT, true, kNow), Answer::kInterrupt);
  EXPECT_EQ(plan.interrupt(), SIGINT);
  EXPECT_THAT(plan.due(kNow + kGrace - 1), IsEmpty());
  EXPECT_THAT(plan.due(kNow + kGrace), ElementsAre(Step::kKill));
}

TEST(StopPlan, ctrl_c_without_grace_kills_at_the_next_turn) {
  StopPlan plan(0);
  plan.on_signal(SIGINT, true, kNow);
  EXPECT_THAT(plan.due(kNow + 1), ElementsAre(Step::kKill));
}

TEST(StopPlan, sigterm_stops_at_once) {
  StopPlan plan(kGrace);
  EXPECT_EQ(plan.on_signal(SIGTERM, true, kNow), Answer::kInterrupt);
  EXPECT_THAT(plan.due(kNow), ElementsAre(Step::kStop));
}

TEST(StopPlan, second_signal_kills) {
  StopPlan plan(kGrace);
  plan.on_signal(SIGINT, true, kNow);
  EXPECT_EQ(plan.on_signal(SIGTERM, true, kNow + 1), Answer::kKill);
  EXPECT_EQ(plan.interrupt(), SIGINT);
  EXPECT_TRUE(plan.is_killing());
  EXPECT_EQ(plan.on_signal(SIGINT, true, kNow + 2), Answer::kKill);
  EXPECT_EQ(plan.next(), kNow + 1 + 5 * kSecond) << "a third signal does not put off the force";
}

TEST(StopPlan, what_an_agent_was_told_by_its_scheduler_stops_the_others_a_little_later) {
  StopPlan plan(kGrace);
  EXPECT_TRUE(plan.on_report(SIGTERM, kNow));
  EXPECT_EQ(plan.interrupt(), SIGTERM);
  EXPECT_FALSE(plan.on_report(SIGTERM, kNow + 1)) << "another agent";
  EXPECT_FALSE(plan.on_failure(kNow + 1));
  EXPECT_THAT(plan.due(kNow + kTellingTakes - 1), IsEmpty());
  EXPECT_THAT(plan.due(kNow + kTellingTakes), ElementsAre(Step::kStop));
}

TEST(StopPlan, sigint_that_an_agent_was_told_kills_after_the_grace) {
  StopPlan plan(kGrace);
  EXPECT_TRUE(plan.on_report(SIGINT, kNow));
  EXPECT_THAT(plan.due(kNow + kTellingTakes + kGrace), IsEmpty());
  EXPECT_THAT(plan.due(kNow + kTellingTakes + kGrace + kSecond), ElementsAre(Step::kKill));
}

TEST(StopPlan, the_scheduler_that_told_an_agent_and_then_us_has_not_signalled_twice) {
  StopPlan plan(kGrace);
  plan.on_report(SIGTERM, kNow);
  EXPECT_EQ(plan.on_signal(SIGTERM, true, kNow + 1), Answer::kKnown);
  EXPECT_FALSE(plan.is_killing());
  EXPECT_EQ(plan.on_signal(SIGINT, true, kNow + 2), Answer::kKill) << "another signal is another event";
  StopPlan other(kGrace);
  other.on_signal(SIGTERM, true, kNow);
  EXPECT_FALSE(other.on_report(SIGTERM, kNow + 1));
  EXPECT_FALSE(other.is_killing());
}

TEST(StopPlan, interrupt_before_the_start_abandons_it) {
  StopPlan plan(kGrace);
  EXPECT_EQ(plan.on_signal(SIGINT, false, kNow), Answer::kAbandonStart);
  EXPECT_EQ(plan.interrupt(), SIGINT);
  plan.on_failed_start(kNow);
  EXPECT_THAT(plan.due(kNow + kSecond), ElementsAre(Step::kForce));
  EXPECT_THAT(plan.due(kNow + 3 * kSecond), ElementsAre(Step::kGiveUp));
}

TEST(StopPlan, signals_that_inform_or_suspend_stop_nothing) {
  StopPlan plan(kGrace);
  EXPECT_EQ(plan.on_signal(SIGUSR1, true, kNow), Answer::kForward);
  EXPECT_EQ(plan.on_signal(SIGXCPU, true, kNow), Answer::kForward);
  EXPECT_EQ(plan.on_signal(SIGTSTP, true, kNow), Answer::kSuspend);
  EXPECT_EQ(plan.interrupt(), 0);
  EXPECT_EQ(plan.next(), 0);
}

TEST(StopPlan, failure_after_an_interrupt_changes_nothing) {
  StopPlan plan(kGrace);
  plan.on_signal(SIGINT, true, kNow);
  EXPECT_FALSE(plan.on_failure(kNow + 1));
  EXPECT_EQ(plan.next(), kNow + kGrace);
}

TEST(StopPlan, lost_host_is_a_cause_unless_it_was_heard_during_the_stop) {
  StopPlan plan(kGrace);
  StopPlan::HostLoss loss = plan.judge_loss(false, kNow - 1, kNow);
  EXPECT_EQ(loss.at, kNow) << "it was heard just now, so it was lost now";
  EXPECT_FALSE(loss.was_stopped);
  loss = plan.judge_loss(true, kNow - 9 * kSecond, kNow);
  EXPECT_EQ(loss.at, kNow - 9 * kSecond);

  plan.on_failure(kNow);
  EXPECT_FALSE(plan.judge_loss(false, kNow, kNow).was_stopped) << "nobody was told to stop yet";
  plan.due(kNow + kOthersGrace);
  const Nanos later = kNow + 20 * kSecond;
  EXPECT_FALSE(plan.judge_loss(true, kNow - 1, later).was_stopped)
      << "it fell silent before the first failure";
  EXPECT_TRUE(plan.judge_loss(true, kNow + 1, later).was_stopped);
  EXPECT_TRUE(plan.judge_loss(false, kNow - 1, later).was_stopped);
}

TEST(StopPlan, host_lost_after_the_user_stopped_the_job_is_no_cause) {
  StopPlan plan(kGrace);
  plan.on_signal(SIGTERM, true, kNow);
  EXPECT_TRUE(plan.judge_loss(true, kNow - kSecond, kNow + 9 * kSecond).was_stopped);
}

}  // namespace
}  // namespace rueda::launch::stop_plan_test
