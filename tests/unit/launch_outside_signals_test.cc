#include "launch/outside_signals.h"

#include <gmock/gmock.h>

#include <csignal>

#include "launch/stop_plan.h"

namespace rueda::launch::outside_signals_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Nanos kNow = 100 * kSecond;
using Way = OutsideSignals::Way;
constexpr int kScheduler = 17, kPerson = 18;

TEST(OutsideSignals, what_the_guardian_alone_got_goes_to_the_ranks) {
  OutsideSignals signals;
  for (const Nanos at : {kNow, kNow + kSecond}) {
    const OutsideSignals::Answer answer = signals.on_own(SIGUSR1, kScheduler, Way::kGuardian, at);
    EXPECT_TRUE(answer.is_new && answer.goes_to_ranks) << "each time that it is sent";
  }
}

TEST(OutsideSignals, what_both_processes_of_an_agent_got_is_one_signal) {
  for (const auto& [first, second] :
       {std::pair(Way::kWorker, Way::kGuardian), std::pair(Way::kGuardian, Way::kWorker)}) {
    OutsideSignals signals;
    for (const Nanos at : {kNow, kNow + kSecond}) {
      EXPECT_TRUE(signals.on_own(SIGUSR1, kScheduler, first, at).goes_to_ranks)
          << "each time that it is sent";
      EXPECT_FALSE(signals.on_own(SIGUSR1, kScheduler, second, at + 1).is_new);
    }
    EXPECT_TRUE(signals.on_own(SIGUSR1, kScheduler, first, kNow + 2 * kSecond).is_new);
    EXPECT_TRUE(signals.on_own(SIGUSR1, kPerson, second, kNow + 2 * kSecond).is_new) << "from somebody else";
    EXPECT_TRUE(signals.on_own(SIGUSR1, kPerson, first, kNow + 6 * kSecond).is_new) << "much later";
  }
}

TEST(OutsideSignals, signals_in_quick_succession_are_as_many_by_both_ways) {
  OutsideSignals signals;
  int delivered = 0;
  for (const Way way : {Way::kWorker, Way::kWorker, Way::kGuardian, Way::kGuardian})
    delivered += signals.on_own(SIGUSR1, kScheduler, way, kNow).goes_to_ranks ? 1 : 0;
  EXPECT_EQ(delivered, 2) << "the guardian takes its time";
}

TEST(OutsideSignals, what_every_process_got_goes_to_nobody_twice) {
  OutsideSignals signals;
  for (const Nanos at : {kNow, kNow + kSecond}) {
    const OutsideSignals::Answer answer = signals.on_spread(SIGUSR1, kScheduler, at);
    EXPECT_TRUE(answer.is_new && !answer.goes_to_ranks);
    EXPECT_FALSE(signals.on_own(SIGUSR1, kScheduler, Way::kGuardian, at + 1).is_new)
        << "the guardian passed it on";
  }
  EXPECT_TRUE(signals.on_own(SIGUSR1, kPerson, Way::kGuardian, kNow + kSecond + 2).goes_to_ranks);
  EXPECT_TRUE(signals.on_own(SIGUSR2, kScheduler, Way::kGuardian, kNow + kSecond + 2).goes_to_ranks);
}

TEST(OutsideSignals, the_launcher_repeats_nothing_that_came_just_before) {
  OutsideSignals signals;
  signals.on_own(SIGUSR1, kScheduler, Way::kGuardian, kNow);
  EXPECT_FALSE(signals.on_launcher(SIGUSR1, kNow + kSecond));
  EXPECT_TRUE(signals.on_launcher(SIGUSR2, kNow + kSecond));
  EXPECT_TRUE(signals.on_launcher(SIGUSR1, kNow + 3 * kSecond));
  EXPECT_TRUE(signals.on_launcher(SIGUSR1, kNow + 3 * kSecond + 1)) << "two signals of a person";
}

TEST(OutsideSignals, what_the_launcher_has_passed_on_is_no_news) {
  OutsideSignals signals;
  signals.on_launcher(SIGUSR1, kNow);
  EXPECT_FALSE(signals.on_own(SIGUSR1, kScheduler, Way::kGuardian, kNow + 1).goes_to_ranks);
  EXPECT_FALSE(signals.on_spread(SIGUSR1, kScheduler, kNow + 1).is_new);
  EXPECT_TRUE(signals.on_own(SIGUSR1, kScheduler, Way::kGuardian, kNow + 5 * kSecond).goes_to_ranks);
}

TEST(ReportedSignals, hosts_that_were_not_signalled_are_told_once) {
  ReportedSignals reports;
  EXPECT_EQ(reports.next(), 0);
  reports.on_report(2, SIGUSR1, kNow);
  reports.on_report(0, SIGUSR1, kNow + 1);
  EXPECT_EQ(reports.next(), kNow + kTellingTakes);
  EXPECT_THAT(reports.due(kNow + kTellingTakes - 1), IsEmpty());
  const std::vector<ReportedSignals::Round> rounds = reports.due(kNow + kTellingTakes);
  ASSERT_EQ(rounds.size(), 1u);
  EXPECT_EQ(rounds[0].signal, SIGUSR1);
  EXPECT_THAT(rounds[0].told, ElementsAre(0, 2));
  reports.on_report(1, SIGUSR1, kNow + kTellingTakes + 1);  // its scheduler was slow
  EXPECT_EQ(reports.next(), 0);
  reports.on_report(1, SIGUSR1, kNow + 10 * kSecond);
  EXPECT_NE(reports.next(), 0);
}

TEST(ReportedSignals, what_came_to_the_launcher_went_to_all) {
  ReportedSignals reports;
  reports.on_own(SIGUSR1, kNow);
  reports.on_report(1, SIGUSR1, kNow + 1);
  EXPECT_EQ(reports.next(), 0);
}

}  // namespace
}  // namespace rueda::launch::outside_signals_test
