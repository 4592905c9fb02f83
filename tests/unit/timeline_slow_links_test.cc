#include "timeline/slow_links.h"

#include <gmock/gmock.h>

namespace rueda::timeline::slow_links_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(LinkSeries, says_what_was_added_in_any_time_and_forgets_evenly) {
  LinkSeries series;
  EXPECT_TRUE(series.is_empty());
  for (int64_t i = 0; i <= 10'000; ++i)
    series.add(i * kSecond, {.bytes = 100 * i, .busy = 10 * i, .awaited_bytes = i, .awaited = 2 * i});
  EXPECT_EQ(series.begin(), 0);
  EXPECT_EQ(series.end(), 10'000 * kSecond);
  EXPECT_EQ(series.total().bytes, 1'000'000);
  for (const int64_t from : {0, 17, 5'000, 9'000}) {
    const LinkTotal part = series.between(from * kSecond, (from + 777) * kSecond);
    EXPECT_NEAR(static_cast<double>(part.bytes), 77'700, 3);
    EXPECT_NEAR(static_cast<double>(part.busy), 7'770, 3);
    EXPECT_NEAR(static_cast<double>(part.awaited_bytes), 777, 3);
    EXPECT_NEAR(static_cast<double>(part.awaited), 2 * 777, 3);
  }
  EXPECT_EQ(series.between(20'000 * kSecond, 30'000 * kSecond).bytes, 0) << "nothing is known of that";
}

// A job of 4 hosts for 120 s. Every link is busy for half of the time at 0.1 GB/s times speed().
class SlowLinks : public testing::Test {
 protected:
  static constexpr Nanos kStep = 5 * kSecond;
  static constexpr int64_t kSteps = 24;
  static constexpr Rank kRanks = 4;

  static Summary judge(const std::function<double(Rank from, Rank to, Nanos when)>& speed) {
    Job job;
    job.size = kRanks;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      RankFile& file = job.ranks.emplace_back();
      file.rank = rank;
      file.began = kStep;  // the clock of this host began then
      for (Rank peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        LinkTotal total;
        for (int64_t i = 1; i <= kSteps; ++i) {
          total.busy += kStep / 2;
          total.bytes += static_cast<int64_t>(0.1 * speed(rank, peer, i * kStep) * kStep / 2);
          file.links[peer].add(kStep + i * kStep, total);
        }
      }
    }
    Summary summary;
    summary.size = kRanks;
    summary.steps = 100;
    summary.step_length = 1.2e9;
    summary.by_rank.resize(kRanks);
    summary.shares[static_cast<size_t>(StepShare::kTransfer)] = 0.6e9;
    judge_links(job, summary);
    return summary;
  }
};

TEST_F(SlowLinks, that_are_equally_fast_are_not_named) {
  const Summary summary = judge([](Rank, Rank, Nanos) { return 1; });
  EXPECT_THAT(summary.links, SizeIs(4));
  EXPECT_NEAR(summary.links[0].out_gbps, 0.1, 1e-6);
  EXPECT_THAT(summary.slow_times, IsEmpty());
  EXPECT_THAT(summary.slow_pairs, IsEmpty());
}

TEST_F(SlowLinks, of_a_rank_in_the_last_third_of_the_job_are_named_with_the_time) {
  const Summary summary =
      judge([](Rank from, Rank, Nanos when) { return from == 2 && when > 80 * kSecond ? 0.1 : 1; });
  EXPECT_FALSE(summary.links[2].is_slow_out) << "over the whole job it is not slow";
  ASSERT_THAT(summary.slow_times, SizeIs(1));
  EXPECT_EQ(summary.slow_times[0].link.end, 2);
  EXPECT_EQ(summary.slow_times[0].link.other, -1);
  EXPECT_NEAR(summary.slow_times[0].from / 1e9, 80, 10);
  EXPECT_NEAR(summary.slow_times[0].until / 1e9, 120, 10);
  EXPECT_THAT(advise(summary), Contains(AllOf(Field(&Advice::text, HasSubstr("others do 0.1 GB/s")),
                                              Field(&Advice::gain, testing::Lt(0.2)))))
      << "it was slow for a third of the time";
}

TEST_F(SlowLinks, between_two_ranks_for_40_s_are_named_with_both) {
  const Summary summary = judge([](Rank from, Rank to, Nanos when) {
    return from == 1 && to == 3 && when > 20 * kSecond && when <= 60 * kSecond ? 0.3 : 1;
  });
  EXPECT_THAT(summary.slow_pairs, IsEmpty());
  ASSERT_THAT(summary.slow_times, SizeIs(1));
  EXPECT_EQ(summary.slow_times[0].link.end, 1);
  EXPECT_EQ(summary.slow_times[0].link.other, 3);
}

TEST_F(SlowLinks, all_the_time_or_for_a_moment_are_not_said_twice_or_at_all) {
  const Summary always = judge([](Rank from, Rank, Nanos) { return from == 2 ? 0.1 : 1; });
  EXPECT_TRUE(always.links[2].is_slow_out);
  EXPECT_THAT(always.slow_times, IsEmpty());
  const Summary moment = judge([](Rank from, Rank, Nanos when) {
    return from == 2 && when > 40 * kSecond && when <= 50 * kSecond ? 0.3 : 1;
  });
  EXPECT_THAT(moment.slow_times, IsEmpty());
}

// Rank 2 sends slowly all the time, and rank 3 to it for 40 s: its port explains both.
TEST_F(SlowLinks, of_a_rank_that_is_named_are_not_named_again_with_others) {
  const Summary summary = judge([](Rank from, Rank to, Nanos when) {
    const bool is_slow_part = when > 20 * kSecond && when <= 60 * kSecond;
    return from == 2 ? 0.1 : from == 3 && to == 2 && is_slow_part ? 0.2 : 1;
  });
  EXPECT_TRUE(summary.links[2].is_slow_out);
  EXPECT_THAT(summary.slow_times, IsEmpty());
  EXPECT_THAT(summary.slow_pairs, IsEmpty());
}

TEST_F(SlowLinks, of_a_rank_for_a_part_of_the_job_are_named_without_its_pairs_in_that_time) {
  const Summary summary = judge([](Rank from, Rank to, Nanos when) {
    const bool is_slow_part = when > 40 * kSecond && when <= 80 * kSecond;
    return !is_slow_part ? 1 : from == 2 ? 0.1 : from == 3 && to == 2 ? 0.15 : 1;
  });
  ASSERT_THAT(summary.slow_times, SizeIs(1));
  EXPECT_EQ(summary.slow_times[0].link.end, 2);
  EXPECT_EQ(summary.slow_times[0].link.other, -1);
}

TEST_F(SlowLinks, are_named_with_their_host_and_the_speeds_of_the_table_and_the_rest_is_said_apart) {
  Summary summary = judge([](Rank from, Rank to, Nanos) { return from == 2 ? 0.1 : to == 2 ? 0.2 : 1; });
  for (RankSummary& rank : summary.by_rank) {
    rank.rank = static_cast<Rank>(&rank - summary.by_rank.data());
    rank.host = std::string("h");
  }
  const std::vector<Advice> advice = advise(summary);
  ASSERT_THAT(advice, SizeIs(2));
  EXPECT_THAT(advice[0].text,
              HasSubstr("The link of rank 2 (host h) is slow: it sends at 10 MB/s (the best rank: 0.1 GB/s) "
                        "and receives at 20 MB/s (the best rank: 0.1 GB/s)"));
  EXPECT_THAT(as_text(summary), HasSubstr("2            0.01            0.02  slow"));
  EXPECT_THAT(advice[1].text, HasSubstr("Apart from slow links, training stands still for 60 ms of a step"));
  EXPECT_NEAR(advice[1].gain, 0.05, 1e-3);
  summary.shares[static_cast<size_t>(StepShare::kTransfer)] = 0.3e9;  // the rest: 2.5 % of a step
  EXPECT_THAT(advise(summary), SizeIs(1));
  summary.slow_pairs = {{.end = 0, .other = 1, .sends = true, .speed = 0.01, .usual = 0.1}};
  EXPECT_THAT(advise(summary),
              Contains(Field(&Advice::text, HasSubstr("The link from rank 0 (host h) to rank 1 "
                                                      "(host h) is slow"))));
}

}  // namespace
}  // namespace rueda::timeline::slow_links_test
