#include "rueda/base/process.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

namespace rueda::base_process_test {
namespace {

constexpr const char* kStat =
    "4711 (a) T (b) ) t 1 4711 4711 0 -1 4194304 90 0 0 0 1 2 0 0 20 0 3 0 987654 3000 200 "
    "18446744073709551615";

TEST(Process, a_name_with_parentheses_does_not_hide_the_state) {
  const ProcessLook look = parse_process_stat(kStat);
  EXPECT_EQ(look.state, ProcessState::kTraced);
  EXPECT_EQ(look.began, 987654);
  EXPECT_EQ(look.parent, 1);
  EXPECT_EQ(look.threads, 3);
  EXPECT_EQ(look.name, "a) T (b) ");
}

TEST(Process, a_text_that_is_cut_short_says_nothing) {
  EXPECT_EQ(parse_process_stat("").state, ProcessState::kUnknown);
  EXPECT_EQ(parse_process_stat("4711 (a) T 1 2").state, ProcessState::kUnknown);
}

TEST(Process, another_process_of_the_same_number_is_unknown) {
  EXPECT_EQ(look_at_process(::getpid(), process_began()).state, ProcessState::kRuns);
  EXPECT_EQ(look_at_process(::getpid(), process_began() + 1).state, ProcessState::kUnknown);
}

TEST(Process, a_stopped_child_is_seen_as_stopped_and_then_as_ended) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(look_at_process(child, 0).state, ProcessState::kStopped);
  ::kill(child, SIGCONT);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(look_at_process(child, 0).state, ProcessState::kEnded);
  ::waitpid(child, &status, 0);
}

TEST(Process, why_it_does_not_answer_is_told_from_its_state) {
  EXPECT_EQ(why_no_answer(ProcessState::kStopped, 42), "it is stopped, and `kill -CONT 42` lets it go on");
  std::set<std::string> different;
  for (int state = 0; state < kProcessStates; ++state)
    different.insert(why_no_answer(static_cast<ProcessState>(state), 42));
  EXPECT_EQ(different.size(), static_cast<size_t>(kProcessStates));
}

}  // namespace
}  // namespace rueda::base_process_test
