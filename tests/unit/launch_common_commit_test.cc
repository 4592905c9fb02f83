#include "launch/common_commit.h"

#include <gtest/gtest.h>

#include <random>

namespace rueda::launch::common_commit_test {
namespace {

using Phase = status::ViewChange::Phase;

// What a member does with its board; see status/elastic_board.h.
struct Process {
  int64_t commit = 0;
  bool is_in_step = false;  // it has contributed to the next commit
  status::ViewChange change{};
  uint16_t answered = 0;
  int answer = 0;

  [[nodiscard]] bool waits() const {
    return change.phase == Phase::kProposed && commit == change.commit && answered == change.round &&
           answer == 1;
  }
  void look() {
    if (change.phase != Phase::kProposed || answered == change.round) return;
    answered = change.round;
    answer = commit <= change.commit ? 1 : -1;
  }
};

TEST(CommonCommit, asks_proposes_the_next_commit_and_confirms_when_all_saw_it_in_time) {
  CommonCommit common;
  CommonCommit::Orders orders = common.begin({{.number = 4}, {.number = 7, .does_leave = true}},
                                             {.are_hosts_added = false, .are_hosts_removed = true});
  ASSERT_EQ(orders.size(), 2);
  EXPECT_EQ(orders[0].second.phase, Phase::kAsked);
  const uint16_t asked = orders[0].second.round;
  EXPECT_TRUE(common.on_report(4, asked, 11, 0).empty());
  orders = common.on_report(7, asked, 12, 0);
  ASSERT_EQ(orders.size(), 2);
  EXPECT_EQ(orders[0].second.phase, Phase::kProposed);
  EXPECT_EQ(orders[0].second.commit, 13);
  EXPECT_FALSE(orders[0].second.does_leave);
  EXPECT_TRUE(orders[1].second.does_leave);
  EXPECT_TRUE(orders[1].second.are_hosts_removed);
  const uint16_t proposed = orders[0].second.round;
  EXPECT_TRUE(common.on_report(4, proposed, 12, 1).empty());
  EXPECT_TRUE(common.on_report(4, asked, 12, 1).empty()) << "of an earlier round";
  orders = common.on_report(7, proposed, 13, 1);
  ASSERT_EQ(orders.size(), 2);
  EXPECT_EQ(orders[0].second.phase, Phase::kConfirmed);
  EXPECT_EQ(orders[0].second.round, proposed);
  EXPECT_EQ(orders[0].second.commit, 13);
}

TEST(CommonCommit, a_member_that_was_too_far_makes_it_look_further_ahead) {
  CommonCommit common;
  auto orders = common.begin({{.number = 0}}, {});
  orders = common.on_report(0, orders[0].second.round, 5, 0);
  orders = common.on_report(0, orders[0].second.round, 9, -1);
  EXPECT_EQ(orders[0].second.phase, Phase::kAsked);
  orders = common.on_report(0, orders[0].second.round, 10, 0);
  EXPECT_EQ(orders[0].second.commit, 12);
}

TEST(CommonCommit, the_end_of_the_view_withdraws_everything) {
  CommonCommit common;
  EXPECT_TRUE(common.end().empty());
  const auto asked = common.begin({{.number = 0, .does_leave = true}}, {.are_hosts_added = true});
  const auto orders = common.end();
  ASSERT_EQ(orders.size(), 1);
  EXPECT_EQ(orders[0].second.phase, Phase::kNone);
  EXPECT_FALSE(orders[0].second.does_leave || orders[0].second.are_hosts_added);
  EXPECT_TRUE(common.on_report(0, asked[0].second.round, 5, 0).empty());
  EXPECT_FALSE(common.is_under_way());
}

// A member completes a step when all have contributed to it. Whatever the order of messages and commits, all
// leave at one commit.
TEST(CommonCommit, members_that_wait_are_released_when_another_has_failed_before_the_confirmation) {
  CommonCommit common;
  auto orders = common.begin({{.number = 0}, {.number = 1}}, {.are_hosts_added = true});
  EXPECT_TRUE(common.on_report(0, orders[0].second.round, 5, 0).empty());
  orders = common.on_report(1, orders[0].second.round, 5, 0);
  ASSERT_EQ(orders[0].second.phase, Phase::kProposed);
  EXPECT_TRUE(common.on_report(0, orders[0].second.round, 6, 1).empty()) << "it waits at this commit";
  orders = common.on_left();
  ASSERT_EQ(orders.size(), 2);
  EXPECT_EQ(orders[0].second.phase, Phase::kNone);
  EXPECT_FALSE(common.is_under_way());
}

TEST(CommonCommit, members_that_leave_at_the_confirmed_commit_do_not_withdraw_it) {
  CommonCommit common;
  auto orders = common.begin({{.number = 0}, {.number = 1}}, {.are_hosts_added = true});
  for (const int64_t commit : {5, 6})
    for (const int number : {0, 1}) {
      const auto next = common.on_report(number, orders[0].second.round, commit, 1);
      if (!next.empty()) orders = next;
    }
  ASSERT_EQ(orders[0].second.phase, Phase::kConfirmed);
  EXPECT_TRUE(common.on_left().empty());
  EXPECT_TRUE(common.is_under_way());
}

TEST(CommonCommit, all_members_leave_at_one_commit_in_10000_schedules) {
  for (uint32_t seed = 1; seed <= 10'000; ++seed) {
    std::mt19937 random(seed);
    CommonCommit common;
    std::vector<Process> members(2 + random() % 3);
    std::vector<CommonCommit::Member> named;
    for (size_t i = 0; i < members.size(); ++i) named.push_back({.number = static_cast<int>(i)});
    std::vector<std::pair<int, status::ViewChange>> to_boards;
    struct Report {
      int number;
      uint16_t round;
      int64_t commit;
      int answer;
    };
    std::vector<Report> reports;
    const auto send = [&](const CommonCommit::Orders& orders) {
      to_boards.insert(to_boards.end(), orders.begin(), orders.end());
    };
    send(common.begin(named, {}));
    std::vector<int64_t> left(members.size(), -1);
    for (int turn = 0; turn < 20'000 && std::ranges::count(left, -1) > 0; ++turn) {
      const size_t i = random() % members.size();
      Process& one = members[i];
      const auto has_contributed = [&one](const Process& other) {
        return other.commit > one.commit || (other.commit == one.commit && other.is_in_step);
      };
      switch (random() % 4) {
        case 0:  // orders to one process stay in their order
          for (auto at = to_boards.begin(); at != to_boards.end(); ++at)
            if (at->first == static_cast<int>(i)) {
              one.change = at->second;
              if (one.change.phase == Phase::kAsked)
                reports.push_back({at->first, one.change.round, one.commit, 0});
              to_boards.erase(at);
              break;
            }
          break;
        case 1:  // the agent
          if (one.change.phase != Phase::kProposed) break;
          if (one.answered == one.change.round)
            reports.push_back({static_cast<int>(i), one.change.round, one.commit, one.answer});
          else if (one.commit >= one.change.commit)
            reports.push_back({static_cast<int>(i), one.change.round, one.commit, -1});
          break;
        case 2:
          if (reports.empty()) break;
          send(common.on_report(reports[0].number, reports[0].round, reports[0].commit, reports[0].answer));
          reports.erase(reports.begin());
          break;
        default:
          if (left[i] >= 0 || one.waits()) break;
          if (!one.is_in_step) {
            one.is_in_step = true;
          } else if (std::ranges::all_of(members, has_contributed)) {
            ++one.commit;
            one.is_in_step = false;
            one.look();
          }
      }
      const bool is_at_commit = !one.is_in_step && one.change.commit <= one.commit;
      if (one.change.phase == Phase::kConfirmed && is_at_commit && left[i] < 0) left[i] = one.commit;
    }
    for (const int64_t commit : left) ASSERT_EQ(commit, left[0]) << "seed " << seed;
    ASSERT_GE(left[0], 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rueda::launch::common_commit_test
