// Ranks of one host give one another descriptors through the lowest of them, over socket pairs in one thread.
#include "rueda/transport/shm/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "rueda/transport/shm/descriptors.h"
#include "rueda/transport/shm/ring_mapping.h"

namespace rueda::transport::board_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kShared = 3;  // descriptors of each rank

ino_t file_of(int fd) {
  struct stat about {};
  EXPECT_EQ(fstat(fd, &about), 0);
  return about.st_ino;
}

// One rank: its board, and what it shares.
struct Member {
  explicit Member(Rank rank) : me(rank), poller(Poller::make().value()) {
    for (size_t i = 0; i < kShared; ++i)
      memories.push_back(RingMapping::create(RingMapping::kMinRingBytes).value());
    board = std::make_unique<Board>(me, *poller, outcome);
  }
  // count: of what each rank gives.
  void begin(const std::vector<Rank>& ranks, const std::vector<size_t>& counts) {
    HostShare host{.ranks = ranks, .counts = counts};
    const auto place = std::ranges::find(ranks, me) - ranks.begin();
    for (size_t i = 0; i < counts[static_cast<size_t>(place)]; ++i) host.mine.push_back(memories[i].fd());
    board->begin(host);
  }
  bool look() {
    poller->poll();
    return board->progress();
  }

  Rank me;
  std::unique_ptr<Poller> poller;
  Outcome outcome;
  std::vector<RingMapping> memories;
  std::unique_ptr<Board> board;
};

class Host {
 public:
  explicit Host(std::vector<Rank> ranks) : Host(ranks, std::vector<size_t>(ranks.size(), kShared)) {}
  Host(std::vector<Rank> ranks, std::vector<size_t> counts)
      : ranks_(std::move(ranks)), counts_(std::move(counts)) {
    for (const Rank rank : ranks_) members_.push_back(std::make_unique<Member>(rank));
  }
  Member& at(size_t index) { return *members_[index]; }
  void begin(size_t index) { at(index).begin(ranks_, counts_); }
  void begin_all() {
    for (size_t i = 0; i < ranks_.size(); ++i) begin(i);
  }
  // The connection of a member to its leader, proved.
  void connect(size_t index) {
    std::array<int, 2> pair{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    at(0).board->adopt(ranks_[index], UniqueFd(pair[0]));
    at(index).board->adopt(ranks_[0], UniqueFd(pair[1]));
  }
  // The same, of a member that passes its own descriptors and reads nothing.
  UniqueFd give_only(size_t index) {
    std::array<int, 2> pair{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    at(0).board->adopt(ranks_[index], UniqueFd(pair[0]));
    std::vector<int> fds;
    for (size_t i = 0; i < counts_[index]; ++i) fds.push_back(at(index).memories[i].fd());
    EXPECT_TRUE(send_descriptors(pair[1], 0x42445552, fds));
    return UniqueFd(pair[1]);
  }
  void look_until_over(const std::vector<size_t>& indices) {
    const auto are_over = [&] {
      return std::ranges::all_of(indices, [this](size_t index) { return at(index).board->is_over(); });
    };
    for (int round = 0; round < 100 && !are_over(); ++round)
      for (const size_t index : indices) at(index).look();
    EXPECT_TRUE(are_over());
  }
  void look_until_over() {
    std::vector<size_t> all(ranks_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    look_until_over(all);
  }
  // Whether that member has what the other one shares.
  void expect_given(size_t taker, size_t giver) {
    const std::vector<UniqueFd> given = at(taker).board->take(ranks_[giver]);
    ASSERT_EQ(given.size(), counts_[giver]) << taker << " of " << giver;
    for (size_t i = 0; i < counts_[giver]; ++i)
      EXPECT_EQ(file_of(given[i].get()), file_of(at(giver).memories[i].fd())) << taker << " of " << giver;
  }

 private:
  std::vector<Rank> ranks_;
  std::vector<size_t> counts_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST(Board, gives_every_rank_what_every_other_one_shares_and_closes_its_connections) {
  Host host({2, 5, 9, 11});
  host.begin_all();
  for (const size_t member : {3u, 1u, 2u}) host.connect(member);
  host.look_until_over();
  for (size_t taker = 0; taker < 4; ++taker) {
    EXPECT_THAT(host.at(taker).board->missing(), IsEmpty());
    for (size_t giver = 0; giver < 4; ++giver)
      if (giver != taker) host.expect_given(taker, giver);
    EXPECT_THAT(host.at(taker).outcome.losses, IsEmpty());
  }
  EXPECT_THAT(host.at(1).board->take(9), IsEmpty()) << "once";
}

TEST(Board, ranks_may_give_different_numbers_of_descriptors_and_none) {
  Host host({0, 3, 4, 8}, {1, 0, 3, 0});
  host.begin_all();
  for (const size_t member : {1u, 2u, 3u}) host.connect(member);
  host.look_until_over();
  for (size_t taker = 0; taker < 4; ++taker)
    for (size_t giver = 0; giver < 4; ++giver)
      if (giver != taker) host.expect_given(taker, giver);
}

TEST(Board, of_more_ranks_than_fit_into_a_message_is_passed_in_several) {
  std::vector<Rank> ranks(100);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<Rank>(i);
  ASSERT_GT(ranks.size() * kShared, kMaxDescriptors);
  Host host(ranks);
  host.begin_all();
  // Only two take what is passed on: this process may not open so many descriptors.
  std::vector<UniqueFd> others;
  for (size_t member = 2; member + 1 < ranks.size(); ++member) others.push_back(host.give_only(member));
  for (const size_t member : {1u, 99u}) host.connect(member);
  host.look_until_over({0, 1, 99});
  for (const size_t taker : {0u, 1u, 99u})
    for (size_t giver = 0; giver < ranks.size(); ++giver)
      if (giver != taker) host.expect_given(taker, giver);
}

TEST(Board, takes_a_connection_that_comes_before_the_leader_knows_its_host) {
  Host host({0, 1});
  host.begin(1);
  host.connect(1);
  EXPECT_FALSE(host.at(0).look());
  EXPECT_FALSE(host.at(0).board->has_work()) << "it must not keep its rank awake";
  host.begin(0);
  host.look_until_over();
  host.expect_given(0, 1);
  host.expect_given(1, 0);
}

TEST(Board, names_who_is_missing_as_far_as_a_rank_can_know) {
  Host host({4, 6, 7});
  host.begin_all();
  host.connect(1);
  while (host.at(0).look())
    ;
  EXPECT_THAT(host.at(0).board->missing(), ElementsAre(7));
  EXPECT_THAT(host.at(1).board->missing(), ElementsAre(4)) << "it waits for its leader";
  EXPECT_FALSE(host.at(0).board->is_over());
  EXPECT_FALSE(host.at(0).board->has_work());
}

TEST(Board, loses_a_rank_that_goes_before_all_have_come) {
  Host host({0, 1, 2});
  host.begin_all();
  host.connect(1);
  host.at(0).look();
  host.at(1).board->end();
  host.at(0).look();
  ASSERT_EQ(host.at(0).outcome.losses.size(), 1u);
  EXPECT_EQ(host.at(0).outcome.losses[0].peer, 1);
  EXPECT_THAT(host.at(0).outcome.losses[0].status.why, HasSubstr("closed its connection"));
  EXPECT_FALSE(host.at(0).board->has_work()) << "it is said once";
}

TEST(Board, loses_a_leader_that_goes_before_it_has_passed_everything_on) {
  Host host({0, 1, 2});
  host.begin_all();
  host.connect(1);
  host.at(0).board->end();
  host.at(1).look();
  ASSERT_EQ(host.at(1).outcome.losses.size(), 1u);
  EXPECT_EQ(host.at(1).outcome.losses[0].peer, 0);
}

TEST(Board, refuses_what_nobody_shares) {
  const UniqueFd bell(eventfd(0, EFD_CLOEXEC));
  const std::vector<int> too_few(1, bell.get()), too_many(kShared + 1, bell.get());
  for (const auto& [magic, fds] : {std::pair{7U, too_few}, {0x42445552U, too_few}, {0x42445552U, too_many}}) {
    Member leader(0);
    leader.begin({0, 1}, {kShared, kShared});
    std::array<int, 2> pair{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    const UniqueFd theirs(pair[1]);
    leader.board->adopt(1, UniqueFd(pair[0]));
    ASSERT_TRUE(send_descriptors(theirs.get(), magic, fds));
    leader.look();
    ASSERT_EQ(leader.outcome.losses.size(), 1u);
    EXPECT_THAT(leader.outcome.losses[0].status.why, HasSubstr("something other than what it shares"));
  }
}

TEST(Board, turns_away_a_rank_of_another_host) {
  Host host({0, 1});
  host.begin_all();
  std::array<int, 2> pair{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
  const UniqueFd theirs(pair[1]);
  host.at(0).board->adopt(7, UniqueFd(pair[0]));
  host.connect(1);
  host.look_until_over();
  std::byte byte{};
  EXPECT_EQ(recv(theirs.get(), &byte, 1, MSG_DONTWAIT), 0) << "it is closed";
  EXPECT_THAT(host.at(0).outcome.losses, IsEmpty());
}

}  // namespace
}  // namespace rueda::transport::board_test
