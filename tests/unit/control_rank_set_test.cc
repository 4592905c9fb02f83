// Sets of ranks against sets of the standard library.
#include "rueda/control/rank_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

namespace rueda::control::rank_set_test {
namespace {

RankSet made_of(const std::set<Rank>& ranks) {
  return RankSet(std::vector<Rank>(ranks.begin(), ranks.end()));
}

std::vector<Rank> listed(const std::set<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

TEST(RankSet, does_what_a_set_does) {
  std::mt19937 random(7);
  for (int i = 0; i < 2'000; ++i) {
    std::set<Rank> a, b, either, both, without;
    const Rank most = 1 + static_cast<Rank>(random() % 24);
    for (unsigned n = random() % 12; n > 0; --n) a.insert(static_cast<Rank>(random()) % most & 31);
    for (unsigned n = random() % 12; n > 0; --n) b.insert(static_cast<Rank>(random()) % most & 31);
    std::ranges::set_union(a, b, std::inserter(either, either.end()));
    std::ranges::set_intersection(a, b, std::inserter(both, both.end()));
    std::ranges::set_difference(a, b, std::inserter(without, without.end()));
    RankSet sum = made_of(a), rest = made_of(a);
    sum.add(made_of(b));
    rest.remove(made_of(b));
    EXPECT_EQ(sum.ranks(), listed(either));
    EXPECT_EQ(sum, made_of(either)) << "one set has one form";
    EXPECT_EQ(rest.ranks(), listed(without));
    EXPECT_EQ(made_of(a).common(made_of(b)).ranks(), listed(both));
    EXPECT_EQ(made_of(a).includes(made_of(b)), std::ranges::includes(a, b));
    EXPECT_EQ(sum.count(), static_cast<Rank>(either.size()));
    for (Rank rank = 0; rank < 32; ++rank) EXPECT_EQ(made_of(a).contains(rank), a.contains(rank));
  }
}

TEST(RankSet, is_read_as_it_was_written_and_in_no_other_form) {
  ByteWriter writer;
  put_ranks(writer, made_of({1, 2, 3, 7, 9}));
  ByteReader reader(writer.bytes());
  EXPECT_EQ(get_ranks(reader), made_of({1, 2, 3, 7, 9}));
  EXPECT_TRUE(reader.is_ok() && reader.is_at_end());
  using Runs = std::vector<RankSet::Run>;
  for (const Runs& wrong : {Runs{}, Runs{{-1, 2}}, Runs{{3, 2}}, Runs{{1, 2}, {3, 4}}, Runs{{5, 6}, {1, 2}},
                            Runs{{1, 1 << 30}}}) {
    ByteWriter bad;
    bad.put_list(wrong, [](ByteWriter& to, const RankSet::Run& run) {
      to.put(run.first);
      to.put(run.last);
    });
    ByteReader of_bad(bad.bytes());
    get_ranks(of_bad);
    EXPECT_FALSE(of_bad.is_ok());
  }
}

TEST(RankSet, of_the_ranks_of_a_world_is_one_run) {
  RankSet world;
  for (Rank host = 0; host < 2'048; ++host) world.add(RankSet::from_to(8 * host, 8 * host + 7));
  EXPECT_EQ(world.runs().size(), 1u);
  EXPECT_EQ(world.count(), 16'384);
}

}  // namespace
}  // namespace rueda::control::rank_set_test
