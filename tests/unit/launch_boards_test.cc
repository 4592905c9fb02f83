#include "launch/boards.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace rueda::launch::boards_test {
namespace {

using Phase = status::ViewChange::Phase;

class BoardsOfAHost : public testing::Test {
 protected:
  BoardsOfAHost() { std::filesystem::create_directory(folder_); }
  ~BoardsOfAHost() override { std::filesystem::remove_all(folder_); }
  status::ElasticBoard process(int32_t number) {
    return status::ElasticBoard::open(boards_.make(number, folder_).value().front().second).value();
  }
  void propose(int32_t number, uint16_t round, int64_t commit) {
    EXPECT_FALSE(boards_.write({number, {.round = round, .phase = Phase::kProposed, .commit = commit}}));
  }
  std::string folder_ = std::filesystem::temp_directory_path() / ("rueda-boards-" + std::to_string(getpid()));
  Boards boards_;
};

TEST_F(BoardsOfAHost, tell_at_once_how_far_a_process_is) {
  status::ElasticBoard process = this->process(3);
  process.committed(17, 0);
  const auto report = boards_.write({3, {.round = 1, .phase = Phase::kAsked}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->commit, 17);
  EXPECT_EQ(report->round, 1);
  EXPECT_FALSE(boards_.write({4, {.round = 1, .phase = Phase::kAsked}})) << "no such process";
}

TEST_F(BoardsOfAHost, tell_each_answer_once) {
  status::ElasticBoard process = this->process(3);
  propose(3, 2, 9);
  EXPECT_TRUE(boards_.answers(1).empty());
  EXPECT_TRUE(boards_.are_awaited());
  process.committed(8, 0);
  const auto answers = boards_.answers(2);
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].answer, 1);
  EXPECT_TRUE(boards_.answers(3).empty());
  EXPECT_FALSE(boards_.are_awaited());
}

TEST_F(BoardsOfAHost, answer_for_a_process_that_went_on_before_it_could_see_the_proposal) {
  status::ElasticBoard process = this->process(3);
  process.committed(9, 0);
  propose(3, 2, 9);
  EXPECT_TRUE(boards_.answers(100).empty());
  EXPECT_TRUE(boards_.answers(100 + kAnswerTime - 1).empty());
  const auto answers = boards_.answers(100 + kAnswerTime);
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].answer, -1);
}

}  // namespace
}  // namespace rueda::launch::boards_test
