// Which part of a buffer each rank keeps when any number of ranks reduce and scatter it along the canonical
// tree.
#include "rueda/schedule/scatter_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "rueda/schedule/blocks.h"
#include "rueda/schedule/hypercube.h"

namespace rueda::schedule::scatter_tree_test {
namespace {

constexpr int64_t kLines = 5040;  // divides evenly for most numbers of ranks

std::vector<ScatterPlace> places_of(Rank ranks, int64_t lines = kLines) {
  std::vector<ScatterPlace> places;
  for (Rank me = 0; me < ranks; ++me) places.push_back(scatter_place(ranks, me, lines));
  return places;
}

int64_t size_of(const Lines& lines) { return std::max<int64_t>(0, lines.end - lines.begin); }

int64_t kept_by(const ScatterPlace& place) {
  int64_t sum = 0;
  for (const Lines& lines : place.kept) sum += size_of(lines);
  return sum;
}

// Two neighbours halve, then a rank with everything joins them: two thirds stay with the two.
TEST(ScatterTree, three_ranks_keep_a_third_each) {
  const auto places = places_of(3, 6);
  ASSERT_EQ(places[0].kept.size(), 1u);
  EXPECT_EQ(places[0].kept[0].begin, 0);
  EXPECT_EQ(places[0].kept[0].end, 2);
  EXPECT_EQ(places[2].kept[0].begin, 2);
  EXPECT_EQ(places[2].kept[0].end, 4);
  EXPECT_EQ(places[1].kept[0].begin, 4);
  EXPECT_EQ(places[1].kept[0].end, 6);
  EXPECT_TRUE(places[2].levels[0].empty()) << "it is alone in its corner";
  ASSERT_EQ(places[2].levels[1].size(), 2u);
  EXPECT_FALSE(places[2].levels[1][0].am_left);
  EXPECT_FALSE(places[2].levels[1][0].have_sums);
  EXPECT_TRUE(places[2].levels[1][0].peer_has_sums);
}

TEST(ScatterTree, any_number_of_ranks_keep_equal_shares_that_cover_the_buffer_once) {
  for (Rank ranks = 1; ranks <= 130; ++ranks) {
    std::vector<int> owners(kLines, 0);
    for (const ScatterPlace& place : places_of(ranks)) {
      for (const Lines& lines : place.kept)
        for (int64_t line = lines.begin; line < lines.end; ++line) ++owners[static_cast<size_t>(line)];
      // Each level rounds to whole lines.
      EXPECT_NEAR(static_cast<double>(kept_by(place)), static_cast<double>(kLines) / ranks, 8) << ranks;
    }
    EXPECT_EQ(std::ranges::count(owners, 1), kLines) << ranks;
  }
}

TEST(ScatterTree, a_rank_sends_what_it_does_not_keep_and_receives_hardly_more_than_the_buffer) {
  for (const Rank ranks : {3, 5, 6, 7, 15, 31, 100, 127}) {
    for (const ScatterPlace& place : places_of(ranks)) {
      int64_t sent = 0, received = 0;
      for (const auto& level : place.levels)
        for (const Meeting& one : level) sent += size_of(one.given), received += size_of(one.kept);
      EXPECT_EQ(sent + kept_by(place), kLines) << ranks;
      EXPECT_LT(received, kLines * 11 / 10) << ranks;
    }
  }
}

// Both sides of a meeting list it at the same place among those that they have with one another.
TEST(ScatterTree, two_ranks_agree_on_what_each_of_them_adds) {
  for (const Rank ranks : {2, 3, 6, 7, 11, 15, 26}) {
    const auto places = places_of(ranks);
    for (Rank me = 0; me < ranks; ++me) {
      for (size_t level = 0; level < places[me].levels.size(); ++level) {
        std::map<Rank, size_t> met;
        for (const Meeting& mine : places[me].levels[level]) {
          const auto& theirs = places[mine.peer].levels[level];
          size_t skip = met[mine.peer]++;
          const auto same =
              std::ranges::find_if(theirs, [&](const Meeting& one) { return one.peer == me && skip-- == 0; });
          ASSERT_NE(same, theirs.end()) << ranks << " ranks: " << me << " and " << mine.peer;
          EXPECT_EQ(same->kept.begin, mine.given.begin);
          EXPECT_EQ(same->given.end, mine.kept.end);
          EXPECT_NE(same->am_left, mine.am_left);
          EXPECT_EQ(same->have_sums, mine.peer_has_sums);
          EXPECT_EQ(mine.am_left, me < mine.peer) << "the canonical order is that of ranks";
        }
      }
    }
  }
}

TEST(ScatterTree, a_rank_meets_few_others_at_a_level) {
  for (Rank ranks = 2; ranks <= 130; ++ranks) {
    size_t most = 0;
    for (const ScatterPlace& place : places_of(ranks))
      for (const auto& level : place.levels) most = std::max(most, level.size());
    EXPECT_LE(most, floor_power_of_two(ranks) == ranks ? 1u : 10u) << ranks;
  }
}

TEST(ScatterTree, powers_of_two_halve_with_one_rank_at_each_level) {
  const ScatterPlace place = scatter_place(8, 5, kLines);
  const std::vector<Rank> peers{4, 7, 1};
  ASSERT_EQ(place.levels.size(), 4u);
  for (size_t level = 1; level < 4; ++level) {
    ASSERT_EQ(place.levels[level].size(), 1u);
    EXPECT_EQ(place.levels[level][0].peer, peers[level - 1]);
    EXPECT_EQ(size_of(place.levels[level][0].kept), kLines >> level);
  }
}

}  // namespace
}  // namespace rueda::schedule::scatter_tree_test
