#include "timeline/link_times.h"

#include <gmock/gmock.h>

#include <random>

namespace rueda::timeline::link_times_test {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;
using Links = std::map<LinkTimes::Link, Nanos>;

MessageTimes received(Rank from, Nanos posted, Nanos began, Nanos ended) {
  return {.peer = from, .posted = posted, .began = began, .ended = ended};
}
MessageTimes sent(Rank to, Nanos began, Nanos ended) {
  return {.peer = to, .is_sent = true, .began = began, .ended = ended};
}

TEST(LinkTimes, a_message_on_the_way_names_its_link_and_the_rest_is_left) {
  LinkTimes times;
  times.add(1, {received(0, 0, 20, 50)});
  Links links;
  EXPECT_EQ(times.divide(1, {{10, 60}}, links), 10 + 10) << "before it was sent, and after it";
  EXPECT_THAT(links, UnorderedElementsAre(Pair(Pair(0, 1), 30)));
}

TEST(LinkTimes, of_several_messages_the_one_that_ends_last_counts) {
  LinkTimes times;
  times.add(3, {received(0, 0, 10, 30), received(1, 0, 10, 40), received(2, 0, 35, 38)});
  Links links;
  EXPECT_EQ(times.divide(3, {{10, 40}}, links), 0);
  EXPECT_THAT(links, UnorderedElementsAre(Pair(Pair(1, 3), 30)));
}

TEST(LinkTimes, what_arrives_counts_more_than_what_is_awaited_and_that_more_than_what_leaves) {
  LinkTimes times;
  times.add(0, {sent(1, 0, 100), received(2, 20, 30, 60)});
  Links links;
  EXPECT_EQ(times.divide(0, {{0, 100}}, links), 10) << "rank 2 had sent nothing yet";
  EXPECT_THAT(links, UnorderedElementsAre(Pair(Pair(0, 1), 60), Pair(Pair(2, 0), 30)));
}

// A ring of four with a slow link from rank 1 to rank 2: each of the others waits for its neighbour.
TEST(LinkTimes, a_slow_link_answers_for_all_who_wait_for_each_other) {
  LinkTimes times;
  times.add(1, {sent(2, 0, 90)});
  times.add(2, {received(1, 0, 0, 90), sent(3, 90, 92)});
  times.add(3, {received(2, 0, 90, 92), sent(0, 92, 94)});
  times.add(0, {received(3, 0, 92, 94)});
  Links links;
  EXPECT_EQ(times.divide(0, {{0, 94}}, links), 0);
  EXPECT_THAT(links, UnorderedElementsAre(Pair(Pair(1, 2), 90), Pair(Pair(2, 3), 2), Pair(Pair(3, 0), 2)));
}

TEST(LinkTimes, ranks_that_wait_for_each_other_end_the_search) {
  LinkTimes times;
  times.add(0, {received(1, 0, 100, 110)});
  times.add(1, {received(0, 0, 100, 110)});
  Links links;
  EXPECT_EQ(times.divide(0, {{0, 50}}, links), 50);
  EXPECT_THAT(links, IsEmpty());
  EXPECT_EQ(times.divide(5, {{0, 50}}, links), 50) << "nothing is known of this rank";
}

TEST(LinkTimes, every_moment_of_random_messages_is_counted_once) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    constexpr Rank kRanks = 4;
    LinkTimes times;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::vector<MessageTimes> messages;
      for (int i = 0; i < 12; ++i) {
        const auto posted = static_cast<Nanos>(random() % 80), began = static_cast<Nanos>(random() % 100);
        const auto ended = static_cast<Nanos>(random() % 120);  // clocks may be wrong: also before it began
        const auto peer = static_cast<Rank>((rank + 1 + static_cast<Rank>(random() % (kRanks - 1))) % kRanks);
        messages.push_back(random() % 2 == 0 ? sent(peer, began, ended)
                                             : received(peer, posted, began, ended));
      }
      times.add(rank, messages);
    }
    for (Rank rank = 0; rank < kRanks; ++rank) {
      Links links;
      Nanos sum = times.divide(rank, {{5, 50}, {50, 61}, {70, 130}}, links);
      for (const auto& [link, time] : links) {
        EXPECT_GT(time, 0);
        sum += time;
      }
      EXPECT_EQ(sum, 45 + 11 + 60);
    }
  }
}

}  // namespace
}  // namespace rueda::timeline::link_times_test
