#include "launch/report.h"

#include <gmock/gmock.h>

#include <csignal>

namespace rueda::launch::report_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Ending ended(Rank rank, Nanos at, int code, int signal = 0) {
  Ending ending;
  ending.rank = rank;
  ending.host = "h" + std::to_string(rank);
  ending.pid = 100 + rank;
  ending.at = at;
  ending.exit_code = code;
  ending.signal = signal;
  return ending;
}

Ending stopped(Rank rank, Nanos at) {
  Ending ending = ended(rank, at, 0, SIGTERM);
  ending.was_stopped = true;
  return ending;
}

TEST(Report, first_cause_is_the_earliest_failure_whatever_the_order_of_news) {
  const std::vector<Ending> endings = {ended(0, 5, 1), ended(1, 3, 7), ended(2, 1, 0), stopped(3, 6)};
  EXPECT_EQ(first_cause(endings), 1u);
  EXPECT_EQ(job_exit_status(endings, 0), 7);
}

TEST(Report, rank_that_failed_because_another_left_is_no_cause_though_it_ended_first) {
  std::vector<Ending> endings = {ended(0, 3, 1), ended(1, 4, 7)};
  endings[0].last_lines = {"Traceback",
                           "rueda.errors.HorovodInternalError: Horovod has been shut down. This was"};
  endings[1].last_lines = {"KeyError: 'boom'"};
  EXPECT_EQ(first_cause(endings), 1u);
  EXPECT_EQ(job_exit_status(endings, 0), 7);
  endings[0].last_lines = {
      "UnknownError: {{function_node __wrapped__}} Horovod has been shut down. This was"};
  EXPECT_EQ(first_cause(endings), 1u) << "in an exception of the framework's";
  endings[0].last_lines = {
      "ValueError: … rank 1 on h1 (pid 101) exited with code 7, so it does not take part in this init; its"};
  EXPECT_EQ(first_cause(endings), 1u);
  endings[0].last_lines = {"ValueError: … another rank could not initialize: rank 1: cannot listen on a:0"};
  EXPECT_EQ(first_cause(endings), 1u);
  endings[1].last_lines = {"HorovodInternalError: rank 2 (host b, pid 3) was lost: its process ended."};
  EXPECT_EQ(first_cause(endings), 0u) << "where all are victims, the first speaks for them";
}

std::string lost(Rank rank, const std::string& why) {
  return "HorovodInternalError: rank " + std::to_string(rank) + " (host h" + std::to_string(rank) +
         ", pid 9) was lost: " + why;
}
const std::string kSilentHost =
    "it has acknowledged nothing for 35 s; its host is down, or the network to it";
const std::string kClosed = "it closed its connection; its process has probably ended, so look at its output";

TEST(Report, rank_that_most_others_lost_is_the_headline_whoever_ended_first) {
  // Rank 1 is cut off, notices first, and blames rank 0.
  std::vector<Ending> endings = {ended(0, 3 * kSecond, 1), ended(1, 2 * kSecond, 1),
                                 ended(2, 4 * kSecond, 5)};
  for (const Rank rank : {0, 2}) endings[static_cast<size_t>(rank)].last_lines = {lost(1, kSilentHost)};
  endings[1].last_lines = {lost(0, kSilentHost)};
  EXPECT_THAT(failure_report(endings, 0),
              HasSubstr("failed: rank 1 on h1 (pid 101) was cut off from the other hosts while it was still "
                        "running; look at the network of its host\n"
                        "  rank 0 failed because of this after 3.0 s\n"));
  EXPECT_EQ(first_cause(endings), 0u);
}

TEST(Report, two_hosts_that_lost_each_other_blame_the_network_between_them) {
  std::vector<Ending> endings = {ended(0, 3 * kSecond, 1), ended(1, 2 * kSecond, 1)};
  endings[0].last_lines = {lost(1, kSilentHost)};
  endings[1].last_lines = {lost(0, kSilentHost)};
  const std::string cut =
      "failed: the network between rank 0 on h0 (pid 100) and rank 1 on h1 (pid 101) was cut while both were "
      "running\n  rank 1 failed because of this after 2.0 s\n";
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(cut));
  endings[0] = stopped(0, 5 * kSecond);
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(cut)) << "only one of them could say it";
}

TEST(Report, cut_between_two_of_three_hosts_is_the_headline) {
  std::vector<Ending> endings = {ended(0, kSecond, 1), ended(1, 2 * kSecond, 1), ended(2, 2 * kSecond, 1)};
  for (Ending& ending : endings)
    ending.last_lines = {
        "RuntimeError: the connection between rank 1 (host h1, pid 101) and rank 2 (host h2, pid 102) broke "
        "while both ranks were alive: it has acknowledged nothing; look at the network between them."};
  EXPECT_THAT(
      failure_report(endings, 0),
      HasSubstr("failed: the network between rank 1 on h1 (pid 101) and rank 2 on h2 (pid 102) was cut "
                "while both were running\n  rank 0 failed because of this after 1.0 s\n"));
  for (Ending& ending : endings)
    ending.last_lines = {
        "ValueError: another rank could not initialize: rank 0: no connection in time from "
        "rank 2 (host h2, pid 102) to rank 1 (host h1, pid 101) over tcp at 10.0.0.2:400: no"};
  EXPECT_THAT(failure_report(endings, 0),
              HasSubstr("failed: rank 2 on h2 (pid 102) could not connect to rank 1 on h1 (pid 101)\n"));
  endings[2].last_lines = {"KeyError: 'boom'"};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("failed: rank 2 on h2 (pid 102) exited with code 1"));
}

TEST(Report, rank_that_ended_because_it_had_lost_another_is_not_blamed_for_that) {
  std::vector<Ending> endings = {ended(0, kSecond, 1), ended(1, 2 * kSecond, 1), ended(2, 3 * kSecond, 1),
                                 stopped(3, 4 * kSecond)};
  endings[0].last_lines = {lost(3, "it has not answered for 30 s, but its host does")};
  for (const size_t i : {1, 2}) endings[i].last_lines = {lost(0, kClosed)};
  EXPECT_THAT(failure_report(endings, 0),
              HasSubstr("failed: rank 3 on h3 (pid 103) was lost to the other ranks while it was still "
                        "running\n  rank 0 failed because of this after 1.0 s\n"));
}

TEST(Report, rank_that_ended_well_while_others_needed_it_is_the_headline) {
  std::vector<Ending> endings = {ended(0, kSecond, 0), ended(1, 2 * kSecond, 1), ended(2, 3 * kSecond, 1),
                                 ended(3, kSecond, 0)};
  const std::string line = "HorovodInternalError: rank 0 (host h0, pid 100) was lost: its process ended.";
  endings[1].last_lines = {line};
  endings[2].last_lines = {line};
  const std::string report =
      "rueda: the job failed: rank 0 on h0 (pid 100) exited with code 0 after 1.0 s, while other ranks still "
      "needed it\n"
      "  rank 1 failed because of this after 2.0 s\n"
      "  last lines of its stderr:\n"
      "  | " +
      line +
      "\n"
      "  ranks 0, 3: ended well\n"
      "  rank 2: exited with code 1\n"
      "  exit status 1\n";
  EXPECT_EQ(failure_report(endings, 0), report);
  endings[1].last_lines = {
      "ValueError: rank 0 on h0 (pid 100) exited with code 0 before all ranks were connected, so this init "
      "failed; its output may say why."};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("the job failed: rank 0 on h0 (pid 100) exited with"));
  endings[1].last_lines = {"KeyError: 'boom'"};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("the job failed: rank 1 on h1 (pid 101) exited with"));
}

TEST(Report, rank_that_did_not_answer_is_the_headline_though_rueda_stopped_it) {
  std::vector<Ending> endings = {ended(0, 2 * kSecond, 1), stopped(1, 4 * kSecond)};
  endings[0].last_lines = {"rank 1 (host h1, pid 101) was lost: it has not answered for 30 s."};
  EXPECT_EQ(failure_report(endings, 0),
            "rueda: the job failed: rank 1 on h1 (pid 101) was lost to the other ranks while it was still "
            "running\n"
            "  rank 0 failed because of this after 2.0 s\n"
            "  last lines of its stderr:\n"
            "  | rank 1 (host h1, pid 101) was lost: it has not answered for 30 s.\n"
            "  rank 1: stopped by rueda (SIGTERM)\n"
            "  exit status 1\n");
}

constexpr const char* kMismatch =
    "rueda.errors.HorovodInternalError: Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape "
    "[3], but another rank sent a tensor of shape [4]. Tensor x: ranks 0, 1, 3 have [3], rank 2 has [4].";

TEST(Report, of_ranks_that_disagree_the_outnumbered_one_is_the_headline) {
  std::vector<Ending> endings = {ended(0, kSecond, 1), ended(1, 2 * kSecond, 1), ended(2, 3 * kSecond, 4),
                                 ended(3, kSecond, 1)};
  for (Ending& ending : endings) ending.last_lines = {kMismatch + std::string(" Outnumbered: rank 2.")};
  EXPECT_EQ(first_cause(endings), 2u) << "though it ended last";
  EXPECT_THAT(failure_report(endings, 0),
              HasSubstr("failed: rank 2 on h2 (pid 102) exited with code 4 after 3.0 s, because it disagrees "
                        "with most ranks about a tensor\n"));
  for (const auto& [words, cause] : {std::pair(" Outnumbered: ranks 3, 12.", 3u),
                                     std::pair(" Outnumbered: ranks 12, 21 and 5 more. rank 3", 0u)}) {
    for (Ending& ending : endings) ending.last_lines = {kMismatch + std::string(words)};
    EXPECT_EQ(first_cause(endings), cause) << words;
  }
}

TEST(Report, outnumbered_rank_that_went_on_or_ended_well_is_the_headline) {
  std::vector<Ending> endings = {ended(0, kSecond, 1), ended(1, kSecond, 1), stopped(2, 4 * kSecond),
                                 ended(3, kSecond, 1)};
  for (const Rank rank : {0, 1, 3})
    endings[static_cast<size_t>(rank)].last_lines = {kMismatch + std::string(" Outnumbered: rank 2.")};
  const std::string line =
      "failed: rank 2 on h2 (pid 102) disagrees with most ranks about a tensor\n"
      "  rank 0 failed because of this after 1.0 s\n";
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(line));
  endings[2] = ended(2, 4 * kSecond, 0);
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(line));
}

TEST(Report, where_as_many_ranks_say_one_thing_as_the_other_none_is_to_blame) {
  std::vector<Ending> endings = {ended(0, kSecond, 1), ended(1, kSecond, 1)};
  for (Ending& ending : endings) ending.last_lines = {kMismatch};
  EXPECT_THAT(
      failure_report(endings, 0),
      HasSubstr("failed: its ranks disagree about a tensor, and no side has more of them; rank 0 on h0 "
                "(pid 100) exited with code 1 after 1.0 s\n"));
  endings[0].last_lines = {"Mismatched parentheses"};
  EXPECT_THAT(failure_report(endings, 0), Not(HasSubstr("disagree")));
}

constexpr const char* kStall =
    "One or more rank (marked by \"!\") is stalled for longer than 3 seconds. Will shutdown. Stalled: ";

TEST(Report, rank_that_never_submitted_is_the_headline_of_a_stall) {
  std::vector<Ending> endings = {ended(0, 2 * kSecond, 1), stopped(1, 4 * kSecond), ended(11, kSecond, 1)};
  for (const size_t i : {0, 2})
    endings[i].last_lines = {"HorovodInternalError: Horovod has been shut down. One or more tensors were",
                             "Missing ranks:", "1!: [allreduce.x]",
                             "Stalled tensors:", kStall + std::string("rank 1.")};
  const std::string line =
      "failed: rank 1 on h1 (pid 101) never submitted what the other ranks waited for\n"
      "  rank 11 failed because of this after 1.0 s\n";
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(line));
  // Twenty stalled tensors leave no other line among the last ones, and torch labels each with its rank.
  for (const size_t i : {0, 2}) endings[i].last_lines = {"[rank0]: " + (kStall + std::string("ranks 1, 2."))};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr(line));
  for (const size_t i : {0, 2}) endings[i].last_lines = {kStall + std::string("ranks 12, 21.")};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("failed: rank 11 on h11"));
}

TEST(Report, at_the_same_moment_a_signal_wins_over_an_exit_code) {
  const std::vector<Ending> endings = {ended(0, 3, 1), ended(1, 3, 0, SIGSEGV)};
  EXPECT_EQ(first_cause(endings), 1u);
  EXPECT_EQ(job_exit_status(endings, 0), 128 + SIGSEGV);
}

TEST(Report, rank_that_was_stopped_is_no_cause_even_if_its_clock_says_earlier) {
  const std::vector<Ending> endings = {stopped(0, 1), ended(1, 3, 2)};
  EXPECT_EQ(first_cause(endings), 1u);
}

TEST(Report, good_job_has_no_report) {
  const std::vector<Ending> endings = {ended(0, 1, 0), ended(1, 2, 0)};
  EXPECT_EQ(first_cause(endings), std::nullopt);
  EXPECT_EQ(job_exit_status(endings, 0), 0);
  EXPECT_EQ(failure_report(endings, 0), "");
}

TEST(Report, names_rank_host_pid_time_code_words_log_and_collateral) {
  std::vector<Ending> endings = {stopped(0, 9 * kSecond), ended(1, 2 * kSecond, 3), stopped(2, 9 * kSecond),
                                 stopped(3, 9 * kSecond), ended(4, 3 * kSecond, 1), ended(5, 1, 0)};
  endings[1].last_lines = {"Traceback", "ValueError: no"};
  endings[1].log_path = "/logs/rank-0001.err";
  EXPECT_EQ(failure_report(endings, 0),
            "rueda: the job failed: rank 1 on h1 (pid 101) exited with code 3 after 2.0 s\n"
            "  last lines of its stderr:\n"
            "  | Traceback\n"
            "  | ValueError: no\n"
            "  log: /logs/rank-0001.err\n"
            "  rank 5: ended well\n"
            "  rank 4: exited with code 1\n"
            "  ranks 0, 2, 3: stopped by rueda (SIGTERM)\n"
            "  exit status 3\n");
}

TEST(Report, runs_of_ranks_are_shortened) {
  std::vector<Ending> endings = {ended(0, 1, 2)};
  for (Rank rank = 1; rank < 64; ++rank) endings.push_back(stopped(rank, 2));
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("ranks 1-63: stopped by rueda"));
}

TEST(Report, sigkill_is_explained_by_the_cgroup_where_it_can_be_read) {
  std::vector<Ending> endings = {ended(0, 1, 0, SIGKILL)};
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("SIGKILL comes from outside"));
  endings[0].was_out_of_memory = true;
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("out-of-memory killer struck"));
  endings[0].was_out_of_memory = false;
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("Somebody killed it"));
}

TEST(Report, exit_code_137_of_a_wrapping_shell_is_explained) {
  EXPECT_THAT(failure_report(std::vector<Ending>{ended(0, 1, 137)}, 0),
              HasSubstr("SIGKILL (out of memory?)"));
}

TEST(Report, job_stopped_by_its_user_blames_no_rank) {
  std::vector<Ending> endings = {ended(0, 1, 1), ended(1, 1, 0)};
  endings[0].was_stopped = true;
  EXPECT_EQ(job_exit_status(endings, SIGINT), 130);
  const std::string report = failure_report(endings, SIGINT);
  EXPECT_THAT(report, HasSubstr("the job was stopped by SIGINT"));
  EXPECT_THAT(report, Not(HasSubstr("failed")));
}

TEST(Report, failure_before_the_interrupt_stays_the_cause) {
  std::vector<Ending> endings = {ended(0, 1, 5), stopped(1, 3)};
  EXPECT_EQ(job_exit_status(endings, SIGINT), 5);
}

TEST(Report, lost_rank_has_a_status_that_is_not_success) {
  Ending lost = ended(0, 5 * kSecond / 2, 0);
  lost.trouble = "was lost with its host: ssh was killed by SIGKILL";
  EXPECT_EQ(exit_status(lost), 1);
  EXPECT_THAT(
      failure_report(std::vector<Ending>{lost}, 0),
      HasSubstr("failed: rank 0 on h0 (pid 100) was lost with its host after 2.5 s: ssh was killed by "
                "SIGKILL\n"))
      << "the reason may end with a time of its own";
}

TEST(Report, hosts_that_were_lost_for_one_cause_have_one_line) {
  std::vector<Ending> endings = {ended(0, 1, 3)};
  for (Rank rank = 1; rank < 40; ++rank) {
    endings.push_back(ended(rank, 2, 0));
    endings.back().trouble = "was lost with its host: h" + std::to_string(rank) + " cannot be reached";
  }
  EXPECT_THAT(failure_report(endings, 0),
              HasSubstr("\n  ranks 1-39: were lost with their hosts: … cannot be reached\n"));
  endings.resize(2);
  EXPECT_THAT(failure_report(endings, 0), HasSubstr("\n  rank 1: was lost with its host: h1 cannot be"));
}

TEST(Report, signals_have_names) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(200), "signal 200");
}

}  // namespace
}  // namespace rueda::launch::report_test
