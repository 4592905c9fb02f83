#include "rueda/base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace rueda::base_thread_test {
namespace {

TEST(StartThread, runs_without_the_applications_signals) {
  std::thread thread;
  bool is_blocked = false;
  ASSERT_TRUE(start_thread(thread, "a test", [&] {
                sigset_t mine;
                pthread_sigmask(SIG_SETMASK, nullptr, &mine);
                is_blocked = sigismember(&mine, SIGINT) == 1;
              }).is_ok());
  thread.join();
  EXPECT_TRUE(is_blocked);
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  EXPECT_EQ(sigismember(&here, SIGINT), 0);
}

// In a child of another user, since root is not limited.
TEST(StartThread, says_so_where_no_thread_is_to_be_had) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user who has no process left";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit one{.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_NPROC, &one) != 0 || setuid(54'321) != 0) _exit(2);
    std::thread thread;
    const Status status = start_thread(thread, "a test", [] {});
    _exit(!status.is_ok() && status.why.find("a thread for a test") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace rueda::base_thread_test
