#include "bench/statistics.h"

#include <gmock/gmock.h>

#include <numeric>

#include "bench/pattern.h"

namespace rueda::bench::statistics_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Percentile, is_a_value_that_was_measured) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile(std::vector<double>{3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

// Two ranks, two calls: [rank 0: call 0, call 1; rank 1: call 0, call 1], nanoseconds.
constexpr int64_t kStarts[] = {1000, 9000, 5000, 8000};
constexpr int64_t kEnds[] = {7000, 12000, 6000, 13000};

TEST(CallTimes, run_from_the_last_start_to_the_last_end_on_one_clock) {
  EXPECT_THAT(call_times_us(kStarts, kEnds, 2, true), ElementsAre(2.0, 4.0));
}

TEST(CallTimes, are_the_slowest_ranks_own_where_clocks_differ) {
  EXPECT_THAT(call_times_us(kStarts, kEnds, 2, false), ElementsAre(6.0, 5.0));
}

TEST(Bandwidth, follows_the_definitions_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1'000'000, 100), 10);  // 1 MB in 100 us
  EXPECT_DOUBLE_EQ(bus_factor("allreduce", 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor("allreduce", 4), 1.5);
  for (const char* name : {"allgather", "reducescatter", "alltoall"})
    EXPECT_DOUBLE_EQ(bus_factor(name, 4), 0.75) << name;
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor("barrier", 4), 0);
}

TEST(Histogram, counts_every_value_once) {
  const std::string text = histogram(std::vector<double>{1.0, 1.1, 1.3, 8.5});
  EXPECT_THAT(text, HasSubstr("1.00 ..       1.41 us        3 |########"));
  EXPECT_THAT(text, HasSubstr("8.00 ..      11.31 us        1 |##"));
}

class Contents : public ::testing::TestWithParam<size_t> {};

TEST_P(Contents, one_wrong_element_anywhere_is_seen) {
  std::vector<float> values(GetParam());
  fill(values, pattern_of(1, 7));
  EXPECT_TRUE(holds(values, pattern_of(1, 7)));
  EXPECT_FALSE(holds(values, pattern_of(1, 8))) << "what the call before left behind";
  EXPECT_FALSE(holds(values, pattern_of(0, 7)));
  for (const size_t at : {size_t{0}, values.size() / 2, values.size() - 1}) {
    values[at] += 1;
    EXPECT_FALSE(holds(values, pattern_of(1, 7))) << at;
    values[at] -= 1;
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, Contents, ::testing::Values(1, 63, 4096, 4097, 100'000));

TEST(Contents, sum_of_all_ranks_is_the_pattern_of_the_sum) {
  constexpr int kRanks = 5;
  constexpr int64_t kFirst = 37;
  std::vector<float> sum(10'000), one(10'000);
  for (int rank = 0; rank < kRanks; ++rank) {
    fill(one, pattern_of(rank, 3, kFirst));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  EXPECT_TRUE(holds(sum, pattern_of_sum(kRanks, 3, kFirst)));
}

TEST(Contents, part_of_a_buffer_continues_its_pattern) {
  std::vector<float> whole(10'000);
  fill(whole, pattern_of(2, 11));
  EXPECT_TRUE(holds(std::span(whole).subspan(4321), pattern_of(2, 11, 4321)));
}

}  // namespace
}  // namespace rueda::bench::statistics_test
