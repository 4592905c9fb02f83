// Which links are slow, with what each has sent in 10 s.
#include "timeline/link_speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace rueda::timeline::link_speeds_test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kMiB = 1 << 20;

// Every link moves 40 MiB, at this many MiB/s. pauses: for each link, of messages of 1 MiB.
LinkTotals make(Rank ends, const std::function<double(Rank, Rank)>& speed, int64_t pauses = 40) {
  LinkTotals totals;
  for (Rank from = 0; from < ends; ++from)
    for (Rank to = 0; to < ends; ++to)
      if (from != to)
        totals[{from, to}] = {
            .bytes = 40 * kMiB, .busy = static_cast<Nanos>(40 / speed(from, to) * kSecond), .pauses = pauses};
  return totals;
}

TEST(LinkSpeeds, equal_links_are_not_slow_however_slow_they_are) {
  for (const double speed : {0.5, 4.0, 500.0})
    for (const Rank ends : {2, 3, 8})
      EXPECT_THAT(find_slow_links(make(ends, [&](Rank, Rank) { return speed; })), IsEmpty());
}

TEST(LinkSpeeds, a_port_is_named_with_its_direction) {
  for (const Rank ends : {3, 4, 9}) {
    const auto out = find_slow_links(make(ends, [](Rank from, Rank) { return from == 1 ? 4 : 40; }));
    ASSERT_THAT(out, SizeIs(1)) << ends;
    EXPECT_EQ(out[0].end, 1);
    EXPECT_EQ(out[0].other, -1);
    EXPECT_TRUE(out[0].sends && !out[0].receives);
    EXPECT_NEAR(out[0].speed / out[0].usual, 0.1, 0.01);
    const auto both =
        find_slow_links(make(ends, [](Rank from, Rank to) { return from == 1 || to == 1 ? 4 : 40; }));
    ASSERT_THAT(both, SizeIs(1)) << ends;
    EXPECT_EQ(both[0].end, 1);
    EXPECT_TRUE(both[0].sends && both[0].receives);
  }
}

TEST(LinkSpeeds, a_pair_is_named_where_its_ends_are_fast_otherwise) {
  for (const Rank ends : {3, 4, 9}) {
    const auto one =
        find_slow_links(make(ends, [](Rank from, Rank to) { return from == 2 && to == 0 ? 4 : 40; }));
    ASSERT_THAT(one, SizeIs(1)) << ends;
    EXPECT_EQ(one[0].end, 2);
    EXPECT_EQ(one[0].other, 0);
    EXPECT_TRUE(one[0].sends && !one[0].receives);
    const auto both =
        find_slow_links(make(ends, [](Rank from, Rank to) { return from + to == 2 && from != to ? 4 : 40; }));
    ASSERT_THAT(both, SizeIs(1)) << ends;
    EXPECT_TRUE(both[0].sends && both[0].receives);
  }
}

// A slow port moves little, and may have moved enough on one of its links only.
TEST(LinkSpeeds, no_pair_is_blamed_while_too_little_is_known_of_a_port) {
  LinkTotals totals = make(3, [](Rank from, Rank to) { return from == 1 || to == 1 ? 4 : 40; });
  for (const auto& link : {std::pair(1, 0), std::pair(0, 1), std::pair(2, 1)}) {
    totals[link] = {.bytes = 400 << 10, .busy = kSecond / 10, .pauses = 1};
  }
  totals[{1, 2}] = {.bytes = kMiB, .busy = kSecond / 4, .pauses = 1};
  EXPECT_THAT(find_slow_links(totals), IsEmpty());
  for (const auto& link : {std::pair(1, 0), std::pair(0, 1), std::pair(2, 1)}) totals[link] = totals[{1, 2}];
  const auto slow = find_slow_links(totals);
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].end, 1);
  EXPECT_EQ(slow[0].other, -1);
  // Control messages on the other links leave no doubt.
  for (const auto& link : {std::pair(1, 0), std::pair(0, 1), std::pair(2, 1)})
    totals[link] = {.bytes = 10 << 10, .busy = kSecond / 10, .pauses = 100};
  EXPECT_THAT(find_slow_links(totals), SizeIs(1));
}

TEST(LinkSpeeds, a_slow_link_needs_few_bytes) {
  // 1.25 MB/s for 3 s, with two messages; the others are idle most of the time.
  LinkTotals totals = make(3, [](Rank, Rank) { return 12; });
  for (auto& [link, total] : totals) total = {.bytes = 2'000'000, .busy = kSecond / 6, .pauses = 2};
  totals[{0, 2}] = {.bytes = 1'900'000, .busy = kSecond * 3 / 2, .pauses = 2};
  const auto slow = find_slow_links(totals);
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].end, 0);
  EXPECT_EQ(slow[0].other, 2);
}

TEST(LinkSpeeds, in_a_ring_the_slow_link_is_the_pair_not_a_port) {
  LinkTotals ring;
  for (Rank from = 0; from < 4; ++from)
    ring[{from, (from + 1) % 4}] = {.bytes = 40 * kMiB, .busy = (from == 1 ? 10 : 1) * kSecond, .pauses = 10};
  const auto slow = find_slow_links(ring);
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].end, 1);
  EXPECT_EQ(slow[0].other, 2);
}

TEST(LinkSpeeds, of_two_ends_the_slow_sender_is_named) {
  const auto slow = find_slow_links(make(2, [](Rank from, Rank) { return from == 1 ? 4 : 40; }));
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].end, 1);
  EXPECT_EQ(slow[0].other, 0);
  EXPECT_TRUE(slow[0].sends && !slow[0].receives);
}

TEST(LinkSpeeds, late_acknowledgements_and_few_bytes_prove_nothing) {
  // Each message of 1 MiB takes 25 ms, and to rank 1, which is late, 40 ms more.
  const auto late = [](Rank, Rank to) { return to == 1 ? 1e3 / 65 : 1e3 / 25; };
  EXPECT_THAT(find_slow_links(make(4, late, 40)), IsEmpty());
  EXPECT_THAT(find_slow_links(make(4, late, 0)), SizeIs(1));
  LinkTotals few = make(4, [](Rank from, Rank) { return from == 1 ? 4 : 40; });
  for (auto& [link, total] : few) total.bytes /= 128;
  EXPECT_THAT(find_slow_links(few), IsEmpty());
}

// In a broadcast, rank 0 shares its port among its links; it moves more than the others.
TEST(LinkSpeeds, an_end_that_sends_to_all_at_once_is_not_slow) {
  LinkTotals totals = make(5, [](Rank from, Rank) { return from == 0 ? 12 : 40; });
  for (Rank to = 1; to < 5; ++to) {
    totals[{0, to}].bytes *= 2;
    totals[{0, to}].busy *= 2;
  }
  EXPECT_THAT(find_slow_links(totals), IsEmpty());
}

// Messages of 64 KiB, each acknowledged late. awaited: MiB/s that the receiver saw.
LinkTotals make_short(Rank ends, const std::function<double(Rank, Rank)>& awaited, double acknowledged = 8) {
  LinkTotals totals = make(
      ends, [&](Rank from, Rank to) { return std::min(acknowledged, awaited(from, to)); }, 640);
  for (auto& [link, total] : totals) {
    total.awaited_bytes = 20 * kMiB;
    total.awaited = static_cast<Nanos>(20 / awaited(link.first, link.second) * kSecond);
  }
  return totals;
}

TEST(LinkSpeeds, with_short_messages_both_ends_must_say_that_a_link_is_slow) {
  const auto port = [](Rank from, Rank to) { return from == 1 || to == 1 ? 9.0 : 40.0; };
  const auto slow = find_slow_links(make_short(4, port, 40));
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].end, 1);
  EXPECT_EQ(slow[0].other, -1);
  EXPECT_THAT(find_slow_links(make_short(
                  4, [](Rank from, Rank) { return from == 1 ? 12.0 : 40.0; }, 40)),
              IsEmpty());  // it may share its port
  LinkTotals unknown = make_short(4, port, 40);
  for (auto& [link, total] : unknown) total.awaited_bytes = total.awaited = 0;
  EXPECT_THAT(find_slow_links(unknown), IsEmpty());
  // Rank 1 is late, so what is sent to it is acknowledged late; when it reads, all arrives as fast as usual.
  LinkTotals late = make_short(
      4, [](Rank, Rank) { return 40.0; }, 40);
  for (auto& [link, total] : late)
    if (link.second == 1) total.busy *= 10;
  EXPECT_THAT(find_slow_links(late), IsEmpty());
  // Its process gets no core, and it reads what has long come.
  LinkTotals starved = make_short(
      4, [](Rank, Rank to) { return to == 1 ? 4.0 : 40.0; }, 40);
  for (auto& [link, total] : starved)
    if (link.second == 1) total.busy /= 10;
  EXPECT_THAT(find_slow_links(starved), IsEmpty());
}

// In a hypercube the second partner of a rank gets half as much at once as the first.
TEST(LinkSpeeds, shorter_messages_do_not_make_a_link_slow) {
  LinkTotals totals = make_short(
      4, [](Rank from, Rank to) { return (from ^ to) == 1 ? 40.0 : 12.0; }, 40);
  for (auto& [link, total] : totals)
    if ((link.first ^ link.second) != 1) total.pauses *= 2;
  EXPECT_THAT(find_slow_links(totals), IsEmpty());
  for (const auto& link : {std::pair(0, 2), std::pair(2, 0)}) {
    totals[link].busy *= 5;
    totals[link].awaited *= 5;
  }
  const auto slow = find_slow_links(totals);
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(std::pair(std::minmax({slow[0].end, slow[0].other})), std::pair(0, 2));
}

TEST(LinkSpeeds, numbers_of_damaged_files_are_harmless) {
  constexpr int64_t kMost = int64_t{1} << 58;
  LinkTotals totals = make(3, [](Rank, Rank) { return 40; });
  totals[{0, 1}] = {.bytes = kMost, .busy = kMost, .pauses = kMost};
  totals[{1, 0}] = {.bytes = -kMost, .busy = -kMost, .pauses = -kMost};
  (void)find_slow_links(totals);
}

}  // namespace
}  // namespace rueda::timeline::link_speeds_test
