// What an init says about connections that do not come up, with a clock of the test's own.
#include "rueda/runtime/connect_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "rueda/base/process.h"

namespace rueda::runtime::connect_wait_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Nanos kBegin = 100 * kSecond;
const std::string kLink =
    "from rank 2 (host c, pid 7) to rank 1 (host b, pid 5) over tcp at 10.0.0.2:4000: Connection refused";
const Status kOutOfTime{Code::kTimeout, "init timed out."};

class ConnectWaitTest : public testing::Test {
 protected:
  ConnectWait wait(Nanos patience = 30 * kSecond) {
    return {*store_, "init1/", Deadline::at(kBegin + patience), kBegin};
  }
  std::unique_ptr<store::Store> store_ = store::make_memory_store();
};

TEST_F(ConnectWaitTest, the_rank_that_dials_says_once_whom_it_does_not_reach_and_why) {
  ConnectWait dialler = wait();
  EXPECT_EQ(dialler.note(kLink, kBegin + 4 * kSecond), "");
  EXPECT_EQ(dialler.note("", kBegin + 6 * kSecond), "") << "it dials nobody any more";
  const std::string said = dialler.note(kLink, kBegin + 6 * kSecond);
  EXPECT_THAT(said, StartsWith("no connection yet " + kLink + ". Init has tried for 6 s and "));
  EXPECT_THAT(said, HasSubstr("; check firewalls (ranks listen on ports that the kernel chooses)"));
  EXPECT_EQ(dialler.note(kLink, kBegin + 20 * kSecond), "");
}

TEST_F(ConnectWaitTest, the_sentence_comes_before_a_short_time_to_start_is_over) {
  EXPECT_NE(wait(2 * kSecond).note(kLink, kBegin + kSecond), "");
}

TEST_F(ConnectWaitTest, a_rank_that_waits_for_the_two_ends_names_them_when_it_gives_up_first) {
  ConnectWait dialler = wait();
  const ConnectWait other = wait();
  EXPECT_EQ(other.explain(kOutOfTime, "").why, kOutOfTime.why) << "nobody has told anything";
  dialler.note(kLink, kBegin + 5 * kSecond);
  const Status told = other.explain(kOutOfTime, "");
  EXPECT_EQ(told.code, Code::kTimeout);
  EXPECT_THAT(told.why, StartsWith("no connection in time " + kLink + ". Check firewalls"));
  EXPECT_EQ(other.explain(kOutOfTime, "from rank 0").why, kOutOfTime.why) << "it knows a cause of its own";
  EXPECT_EQ(other.explain({Code::kPeerLost, "lost."}, "").why, "lost.");
}

TEST_F(ConnectWaitTest, a_connection_that_has_come_up_explains_nothing) {
  ConnectWait first = wait(), second = wait();
  first.note(kLink, kBegin + 5 * kSecond);
  first.note("", kBegin + 7 * kSecond);
  EXPECT_EQ(wait().explain(kOutOfTime, "").why, kOutOfTime.why);
  second.note("from rank 3", kBegin + 8 * kSecond);
  EXPECT_THAT(wait().explain(kOutOfTime, "").why, HasSubstr("in time from rank 3."));
}

TEST_F(ConnectWaitTest, of_many_ranks_that_cannot_reach_a_host_a_few_say_so) {
  int said = 0;
  for (int rank = 0; rank < 100; ++rank) said += wait().note(kLink, kBegin + 5 * kSecond).empty() ? 0 : 1;
  EXPECT_EQ(said, 4);
}

TEST(MissingProcesses, one_of_this_host_that_has_ended_is_named_and_no_other_one) {
  const pid_t child = fork();
  if (child == 0) pause();
  ASSERT_GT(child, 0);
  std::vector<PeerInfo> all(3);
  for (PeerInfo& info : all) {
    info.pid = getpid();
    info.pid_space = pid_space();
    info.host = info.host_key = "a";
  }
  all[1].pid = child;
  all[1].began = look_at_process(child, 0).began;
  EXPECT_TRUE(check_processes({0, 1, 2}, 0, all).is_ok()) << "all live";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Status lost = check_processes({0, 1, 2}, 0, all);
  EXPECT_EQ(lost.code, Code::kPeerLost);
  EXPECT_THAT(lost.why, StartsWith("rank 1 (host a, pid " + std::to_string(child) + ") has ended before "));
  EXPECT_TRUE(check_processes({0, 2}, 0, all).is_ok());
  all[1].pid_space = 1;
  EXPECT_TRUE(check_processes({1}, 0, all).is_ok()) << "its pids are others";
  all[1].pid_space = all[0].pid_space;
  all[1].host_key = "b";
  EXPECT_TRUE(check_processes({1}, 0, all).is_ok()) << "it is on another host";
}

}  // namespace
}  // namespace rueda::runtime::connect_wait_test
