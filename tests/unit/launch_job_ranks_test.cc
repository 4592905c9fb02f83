#include "launch/job_ranks.h"

#include <gmock/gmock.h>

#include <csignal>

#include "launch/notices.h"
#include "launch/report.h"

namespace rueda::launch::job_ranks_test {
namespace {

using ::testing::HasSubstr;

// Ranks 0 and 1 on host a, rank 2 on host b; nothing on host c.
JobRanks three_ranks() {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 1}, {"c", 4}};
  return {place_ranks(hosts, 3).value(), hosts};
}

Exit exit_of(Rank rank, int code) {
  Exit exit;
  exit.rank = rank;
  exit.pid = 100 + rank;
  exit.exit_code = code;
  return exit;
}

Ending lost_at(Nanos at) {
  Ending ending;
  ending.at = at;
  ending.trouble = "was lost with its host: cable";
  return ending;
}

TEST(JobRanks, more_processes_may_come_on_hosts_that_are_known_or_new) {
  JobRanks ranks = three_ranks();
  EXPECT_EQ(ranks.add("b"), 3);
  EXPECT_EQ(ranks.host_count(), 2);
  ranks.add_host("d");
  EXPECT_EQ(ranks.add("d"), 4);
  EXPECT_EQ(ranks.size(), 5);
  EXPECT_EQ(ranks.host_of(4), "d");
  EXPECT_EQ(ranks.host_count(), 4) << "d comes after the unused c";
  EXPECT_EQ(ranks.on_exit(exit_of(3, 1), 5, false).host, "b");
  EXPECT_EQ(ranks.running(), 4);
}

TEST(JobRanks, host_without_ranks_is_not_counted) {
  const JobRanks ranks = three_ranks();
  EXPECT_EQ(ranks.host_count(), 2);
  EXPECT_EQ(ranks.host_of(2), "b");
  EXPECT_EQ(ranks.running(), 3);
  EXPECT_EQ(JobRanks().host_count(), 0);
}

TEST(JobRanks, exit_becomes_an_ending_in_our_clock) {
  JobRanks ranks = three_ranks();
  Exit exit = exit_of(1, 0);
  exit.signal = SIGKILL;
  exit.was_out_of_memory = 1;
  const Ending& ending = ranks.on_exit(exit, 7, false);
  EXPECT_EQ(ending.host, "a");
  EXPECT_EQ(ending.pid, 101);
  EXPECT_EQ(ending.at, 7);
  EXPECT_EQ(ending.was_out_of_memory, true);
  EXPECT_FALSE(ending.was_stopped);
  EXPECT_EQ(ranks.running(), 2);
  EXPECT_EQ(ranks.any_failed(), 1);
}

TEST(JobRanks, rank_that_fails_after_the_user_stopped_the_job_was_stopped) {
  JobRanks ranks = three_ranks();
  EXPECT_TRUE(ranks.on_exit(exit_of(0, 1), 7, true).was_stopped);
}

TEST(JobRanks, lost_host_ends_its_running_ranks_only) {
  JobRanks ranks = three_ranks();
  ranks.on_started(0, 50);
  ranks.on_exit(exit_of(1, 0), 3, false);
  EXPECT_TRUE(ranks.on_host_lost(0, lost_at(9)));
  EXPECT_FALSE(ranks.on_host_lost(0, lost_at(10))) << "it is news once";
  const std::vector<Ending> endings = ranks.endings();
  ASSERT_EQ(endings.size(), 2u);
  EXPECT_EQ(endings[0].pid, 50);
  EXPECT_EQ(endings[0].at, 9);
  EXPECT_TRUE(endings[0].is_failure());
  EXPECT_FALSE(endings[1].is_failure());
  EXPECT_EQ(ranks.running(), 1);
}

TEST(JobRanks, host_that_fell_silent_first_is_the_cause_of_what_its_victims_report) {
  JobRanks ranks = three_ranks();
  ranks.on_exit(exit_of(0, 1), 9, false);
  ranks.on_exit(exit_of(1, 1), 9, false);
  ranks.on_host_lost(1, lost_at(2));
  const std::vector<Ending> endings = ranks.endings();
  EXPECT_EQ(first_cause(endings), 2u);
}

TEST(Notices, horovod_style_uses_the_words_of_horovodrun) {
  const auto style = PrefixStyle::Kind::kHorovod;
  Ending ending;
  ending.rank = 2;
  EXPECT_EQ(exit_notice(style, ending), "");
  ending.exit_code = 3;
  EXPECT_EQ(exit_notice(style, ending), "Process 2 exit with status code 3.\n");
  EXPECT_EQ(stop_notice(style, 2, 1, kSecond), "Terminating remaining workers after failure of Process 2.\n");
  EXPECT_THAT(closing_notice(style, ending), HasSubstr("Process name: 2\nExit code: 3\n"));
}

TEST(Notices, own_style_says_how_long_the_others_have) {
  const auto style = PrefixStyle::Kind::kRueda;
  EXPECT_EQ(exit_notice(style, lost_at(1)), "");
  EXPECT_EQ(closing_notice(style, lost_at(1)), "");
  EXPECT_EQ(stop_notice(style, 2, 0, kSecond), "") << "nobody is left to be stopped";
  EXPECT_THAT(stop_notice(style, 2, 3, 2 * kSecond), HasSubstr("rank 2 failed"));
  EXPECT_THAT(interrupt_notice(SIGINT, 5), HasSubstr("another Ctrl-C kills them at once"));
}

}  // namespace
}  // namespace rueda::launch::job_ranks_test
