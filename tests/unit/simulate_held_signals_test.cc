// What a signal leaves behind that ends a measurement.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "bench/temporary_folder.h"
#include "simulate/held_signals.h"
#include "simulate/training_run.h"

namespace rueda::simulate::held_signals_test {
namespace {

class EndsBySignal : public testing::TestWithParam<int> {};

TEST_P(EndsBySignal, a_replay_ends_with_the_process_and_nothing_is_left) {
  const Result<bench::TemporaryFolder> folder = bench::TemporaryFolder::make("rueda-test");
  ASSERT_TRUE(folder.is_ok());
  const std::string inner = folder.value().path() + "/inner";
  std::filesystem::create_directory(inner);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(GetParam(), SIG_DFL);  // under nohup, SIGHUP is ignored
    {
      const HeldSignals signals;
      kill(getpid(), GetParam());
      const TrainingRun run{.binary = "/bin/sleep", .folder = inner};
      if (run.start({"300"}, {}).is_ok() || !HeldSignals::has_come()) _exit(1);
      std::filesystem::remove_all(inner);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  EXPECT_FALSE(std::filesystem::exists(inner));
}

INSTANTIATE_TEST_SUITE_P(Every, EndsBySignal, testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace rueda::simulate::held_signals_test
