#include "rueda/status/elastic_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

namespace rueda::status::elastic_board_test {
namespace {

using Phase = ViewChange::Phase;

class Board : public testing::Test {
 protected:
  ~Board() override { std::filesystem::remove(path_); }
  std::string path_ = std::filesystem::temp_directory_path() / ("rueda-board-" + std::to_string(getpid()));
  ElasticBoard agent_ = ElasticBoard::make(path_).value();
  ElasticBoard process_ = ElasticBoard::open(path_).value();
};

TEST_F(Board, carries_what_the_launcher_says) {
  EXPECT_EQ(process_.read(), ViewChange{});
  const ViewChange change{.round = 65'535,
                          .phase = Phase::kConfirmed,
                          .commit = (int64_t{1} << 42) - 1,
                          .are_hosts_added = true,
                          .are_hosts_removed = false,
                          .does_leave = true};
  agent_.write(change);
  EXPECT_EQ(process_.read(), change);
}

TEST_F(Board, carries_the_commit_of_the_process) {
  EXPECT_EQ(agent_.commit(), -1);
  process_.committed(7, kSecond);
  EXPECT_EQ(agent_.commit(), 7);
  EXPECT_EQ(agent_.answer(1), 0);
}

TEST_F(Board, a_process_answers_a_proposal_once_and_goes_on_before_its_commit) {
  agent_.write({.round = 3, .phase = Phase::kProposed, .commit = 9});
  EXPECT_EQ(agent_.answer(3), 0) << "it answers when it commits";
  process_.committed(8, 0);
  EXPECT_EQ(agent_.answer(3), 1);
  EXPECT_EQ(agent_.answer(2), 0);
}

TEST_F(Board, a_process_that_was_too_far_says_so_and_does_not_wait) {
  agent_.write({.round = 3, .phase = Phase::kProposed, .commit = 9});
  process_.committed(10, 3600 * kSecond);
  EXPECT_EQ(agent_.answer(3), -1);
}

TEST_F(Board, a_process_waits_at_the_commit_until_it_is_confirmed_or_withdrawn) {
  for (const Phase outcome : {Phase::kConfirmed, Phase::kNone}) {
    const auto round = static_cast<uint16_t>(10 + static_cast<int>(outcome));
    agent_.write({.round = round, .phase = Phase::kProposed, .commit = 9});
    {
      std::jthread launcher([&] {
        while (agent_.answer(round) == 0) std::this_thread::yield();
        agent_.write({.round = round, .phase = outcome, .commit = 9});
      });
      process_.committed(9, 3600 * kSecond);
    }
    EXPECT_EQ(process_.read().phase, outcome);
  }
}

TEST_F(Board, a_process_does_not_wait_longer_than_it_may) {
  agent_.write({.round = 3, .phase = Phase::kProposed, .commit = 9});
  process_.committed(9, kMillisecond);
  EXPECT_EQ(process_.read().phase, Phase::kProposed);
}

}  // namespace
}  // namespace rueda::status::elastic_board_test
