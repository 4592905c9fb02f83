#include "bench/sizes.h"

#include <gmock/gmock.h>

namespace rueda::bench::sizes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sizes, units_are_powers_of_two_with_an_i_and_of_ten_without) {
  for (const auto& [text, bytes] :
       std::vector<std::pair<std::string, int64_t>>{{"4B", 4},
                                                    {"100", 100},
                                                    {"64KiB", 65536},
                                                    {"64 kib", 65536},
                                                    {"1.5MiB", 1572864},
                                                    {"2GB", 2'000'000'000},
                                                    {"3KB", 3000},
                                                    {"64GiB", int64_t{64} << 30}}) {
    const Result<int64_t> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().why;
    EXPECT_EQ(parsed.value(), bytes) << text;
  }
}

TEST(Sizes, unknown_unit_is_named) {
  EXPECT_THAT(parse_bytes("4XB").status().why, HasSubstr("unknown unit XB;"));
}

TEST(Sizes, nonsense_is_refused) {
  for (const char* text : {"", "B", "-4B", "0", "0.3B", "nan", "inf", "1e40B", "65GiB", "4B4"})
    EXPECT_FALSE(parse_bytes(text).is_ok()) << text;
}

TEST(Sizes, list_has_no_empty_entry) {
  EXPECT_THAT(parse_sizes("4B,1KiB").value(), ElementsAre(4, 1024));
  for (const char* text : {"", ",", "4B,", "4B,,8B"}) EXPECT_FALSE(parse_sizes(text).is_ok()) << text;
}

TEST(Sizes, text_of_a_size_parses_to_it) {
  for (const int64_t bytes : {4L, 1000L, 1024L, 65536L, 1L << 20, 3L << 30, (1L << 20) + 4})
    EXPECT_EQ(parse_bytes(size_text(bytes)).value(), bytes) << size_text(bytes);
}

TEST(Rates, are_bits_with_a_unit) {
  EXPECT_EQ(parse_rate("1gbit").value(), 1'000'000'000);
  EXPECT_EQ(parse_rate("2.5Gbit").value(), 2'500'000'000);
  EXPECT_EQ(parse_rate("500mbit").value(), 500'000'000);
}

TEST(Rates, impossible_ones_are_refused_with_the_range) {
  for (const char* text : {"0gbit", "999kbit", "99999999999999gbit"})
    EXPECT_THAT(parse_rate(text).status().why, HasSubstr("give 1mbit to 1000000000gbit")) << text;
  EXPECT_EQ(parse_rate("800gbit").value(), 800'000'000'000);
  EXPECT_EQ(parse_link_rate("400gbit").value(), 400'000'000'000);
  EXPECT_THAT(parse_link_rate("401gbit").status().why, HasSubstr("from 1mbit to 400gbit"));
  for (const char* text : {"", "fast", "1gb", "1", "-1gbit"}) EXPECT_FALSE(parse_rate(text).is_ok()) << text;
}

TEST(Counts, outside_of_the_range_are_refused) {
  EXPECT_THAT(parse_counts("2,16", 1, 64).value(), ElementsAre(2, 16));
  for (const char* text : {"0", "65", "2x", "2,"}) EXPECT_FALSE(parse_counts(text, 1, 64).is_ok()) << text;
}

TEST(ServerCounts, are_numbers_or_ratios_to_the_ranks) {
  const auto counts = parse_servers("1:1,1:4,3:4,8", 8).value();
  ASSERT_EQ(counts.size(), 4U);
  for (const auto& [ranks, expected] : std::vector<std::pair<int, std::vector<int>>>{
           {8, {8, 2, 6, 8}}, {2, {2, 1, 2, 8}}, {1, {1, 1, 1, 8}}, {6, {6, 2, 5, 8}}})
    for (size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(counts[i].of(ranks), expected[i]) << ranks << " " << i;
  for (const char* text : {"", "0", "9", "2:1", "1:", ":4", "1:4x", "1:0", "x", "1;4", "-1", "1:-4"})
    EXPECT_FALSE(parse_servers(text, 8).is_ok()) << text;
}

}  // namespace
}  // namespace rueda::bench::sizes_test
