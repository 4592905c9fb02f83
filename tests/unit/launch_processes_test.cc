#include "launch/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace rueda::launch::processes_test {
namespace {

using testing::Contains;
using testing::Not;

pid_t start_sleeper() {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  while (true) pause();
}

// A process whose parent ends while /proc is read is below nobody for that look.
TEST(KillAll, kills_what_the_first_look_does_not_find) {
  const pid_t sleeper = start_sleeper();
  int looks = 0;
  const auto find = [&] { return ++looks == 3 ? std::vector<pid_t>{sleeper} : std::vector<pid_t>(); };
  EXPECT_EQ(kill_all(find, Deadline::after(60 * kSecond)), 0u);
  EXPECT_EQ(looks, 6) << "three looks in a row must find nothing";
  int status = 0;
  ASSERT_EQ(waitpid(sleeper, &status, 0), sleeper);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(KillAll, gives_up_at_the_deadline_and_says_how_many_are_left) {
  const pid_t sleeper = start_sleeper();
  EXPECT_EQ(kill_all([&] { return std::vector<pid_t>(2, sleeper); }, Deadline::after(0)), 2u);
  waitpid(sleeper, nullptr, 0);
}

TEST(LivingProcesses, are_those_that_have_not_ended) {
  const pid_t sleeper = start_sleeper();
  const auto pids = [] {
    std::vector<pid_t> found;
    for (const auto& [pid, look] : living_processes()) found.push_back(pid);
    return found;
  };
  EXPECT_THAT(pids(), Contains(sleeper));
  EXPECT_THAT(descendants_of(getpid()), Contains(sleeper));
  kill(sleeper, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(sleeper), &info, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(pids(), Not(Contains(sleeper))) << "a zombie has ended";
  waitpid(sleeper, nullptr, 0);
}

// While a killed process ends, its first thread may be a zombie already, and its children are still its own.
TEST(DescendantsOf, finds_those_below_a_zombie_with_a_thread) {
  const Result<Pipe> told = make_pipe();
  ASSERT_TRUE(told.is_ok());
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t sleeper = start_sleeper();
    std::thread([&] { pause(); }).detach();
    if (write(told.value().write.get(), &sleeper, sizeof sleeper) != sizeof sleeper) _exit(1);
    syscall(SYS_exit, 0);  // this thread alone
  }
  pid_t sleeper = 0;
  ASSERT_EQ(read(told.value().read.get(), &sleeper, sizeof sleeper), ssize_t{sizeof sleeper});
  const Deadline deadline = Deadline::after(60 * kSecond);
  while (look_at_process(parent, 0).state != ProcessState::kEnded && !deadline.is_past()) usleep(1000);
  const ProcessLook look = look_at_process(parent, 0);
  EXPECT_EQ(look.state, ProcessState::kEnded);
  EXPECT_TRUE(is_alive(look)) << "one of its threads is";
  EXPECT_THAT(descendants_of(getpid()), testing::IsSupersetOf({parent, sleeper}));
  EXPECT_EQ(kill_descendants(Deadline::after(60 * kSecond)), 0u);
  EXPECT_FALSE(is_alive(look_at_process(parent, 0)));
  EXPECT_FALSE(is_alive(look_at_process(sleeper, 0)));
  waitpid(parent, nullptr, 0);
}

}  // namespace
}  // namespace rueda::launch::processes_test
