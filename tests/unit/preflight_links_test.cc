#include "preflight/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "preflight/exchange.h"

namespace rueda::preflight::links_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<PairMeasurement> pairs_of(int hosts, const std::function<double(int, int)>& rate) {
  std::vector<PairMeasurement> pairs;
  for (int a = 0; a < hosts; ++a)
    for (int b = a + 1; b < hosts; ++b)
      pairs.push_back({.a = a, .b = b, .gbit_per_s = rate(a, b), .round_trip_us = 50});
  return pairs;
}

std::vector<int> hosts_of(const std::vector<SlowHost>& slow) {
  std::vector<int> hosts;
  for (const SlowHost& one : slow) hosts.push_back(one.host);
  return hosts;
}
std::vector<std::pair<int, int>> links_of(const std::vector<SlowLink>& slow) {
  std::vector<std::pair<int, int>> links;
  for (const SlowLink& one : slow) links.emplace_back(one.a, one.b);
  return links;
}

TEST(PreflightLinks, a_slow_host_is_named_and_its_links_are_not) {
  for (const int hosts : {3, 4, 5, 9, 64}) {
    const LinkVerdict verdict =
        judge_links(hosts, pairs_of(hosts, [](int a, int b) { return a == 2 || b == 2 ? 9.4 : 25; }));
    EXPECT_THAT(hosts_of(verdict.slow_hosts), ElementsAre(2)) << hosts;
    EXPECT_DOUBLE_EQ(verdict.slow_hosts[0].usual, 25) << hosts;
    EXPECT_THAT(verdict.slow_links, IsEmpty()) << hosts;
  }
}

TEST(PreflightLinks, a_slow_link_is_named_and_its_ends_are_not) {
  for (const int hosts : {3, 4, 5, 9, 64}) {
    const LinkVerdict verdict =
        judge_links(hosts, pairs_of(hosts, [](int a, int b) { return a == 0 && b == 1 ? 9.4 : 25; }));
    EXPECT_THAT(links_of(verdict.slow_links), ElementsAre(std::pair(0, 1))) << hosts;
    EXPECT_THAT(verdict.slow_hosts, IsEmpty()) << hosts;
    EXPECT_EQ(verdict.hosts[0].slowest_with, 1);
  }
}

TEST(PreflightLinks, a_slow_link_between_slow_hosts_is_found_beside_them) {
  const LinkVerdict verdict = judge_links(8, pairs_of(8, [](int a, int b) {
                                            if (a == 0 && b == 1) return 2.0;
                                            return a < 2 ? 10.0 : 25.0;
                                          }));
  EXPECT_THAT(hosts_of(verdict.slow_hosts), ElementsAre(0, 1));
  EXPECT_THAT(links_of(verdict.slow_links), ElementsAre(std::pair(0, 1)));
}

TEST(PreflightLinks, with_as_many_slow_hosts_as_fast_ones_the_slow_ones_are_named) {
  const LinkVerdict verdict = judge_links(4, pairs_of(4, [](int a, int) { return a < 2 ? 10.0 : 25.0; }));
  EXPECT_THAT(hosts_of(verdict.slow_hosts), ElementsAre(0, 1));
}

TEST(PreflightLinks, two_hosts_are_not_compared) {
  const LinkVerdict verdict = judge_links(2, pairs_of(2, [](int, int) { return 0.001; }));
  EXPECT_THAT(verdict.slow_hosts, IsEmpty());
  EXPECT_THAT(verdict.slow_links, IsEmpty());
  EXPECT_DOUBLE_EQ(verdict.usual_gbit_per_s, 0.001);
}

// Noise of 7 per cent, 100 fleets of 32 hosts: 49,600 links, and not one is blamed.
TEST(PreflightLinks, noise_blames_nobody) {
  std::mt19937 random(20260807);
  std::normal_distribution<double> noise(1, 0.07);
  for (int fleet = 0; fleet < 100; ++fleet) {
    const LinkVerdict verdict = judge_links(32, pairs_of(32, [&](int, int) { return 25 * noise(random); }));
    EXPECT_THAT(verdict.slow_hosts, IsEmpty()) << fleet;
    EXPECT_LE(verdict.slow_links.size(), 1U) << fleet;
  }
}

TEST(PreflightLinks, long_latencies_name_the_host_or_the_link) {
  auto pairs = pairs_of(6, [](int, int) { return 25; });
  for (PairMeasurement& pair : pairs) {
    if (pair.a == 3 || pair.b == 3) pair.round_trip_us = 4000;
    if (pair.a == 0 && pair.b == 1) pair.round_trip_us = 9000;
    if (pair.a == 4 && pair.b == 5) pair.round_trip_us = 900;  // another rack
  }
  const LinkVerdict verdict = judge_links(6, pairs);
  ASSERT_EQ(verdict.long_hosts.size(), 1U);
  EXPECT_EQ(verdict.long_hosts[0].host, 3);
  ASSERT_EQ(verdict.long_links.size(), 1U);
  EXPECT_EQ(verdict.long_links[0].b, 1);
}

TEST(PreflightLinks, the_round_trip_is_the_kernels_unless_calls_show_that_it_ends_halfway) {
  const auto is_trip = [](double us, bool is_counted) {
    return testing::AllOf(testing::Field(&RoundTrip::us, us),
                          testing::Field(&RoundTrip::is_counted, is_counted));
  };
  EXPECT_THAT(round_trip_of(40, 0), is_trip(40, true)) << "noise made calls with 8 bytes the faster ones";
  EXPECT_THAT(round_trip_of(40, 700), is_trip(40, true)) << "a busy host";
  EXPECT_THAT(round_trip_of(40, 9000), is_trip(9000, false))
      << "a proxy on the host, and a long way behind it";
  EXPECT_THAT(round_trip_of(9000, 9200), is_trip(9000, true));
  EXPECT_THAT(round_trip_of(0, 30), is_trip(30, false)) << "UCX, shared memory";
  EXPECT_THAT(round_trip_of(0, -5), is_trip(0, false));
}

TEST(PreflightLinks, the_better_of_two_measurements_counts_but_a_wrong_byte_stays) {
  PairMeasurement known{.a = 0, .b = 1, .gbit_per_s = 5, .round_trip_us = 70, .bytes = 8, .is_right = false};
  improve(known, {.a = 0, .b = 1, .gbit_per_s = 9, .round_trip_us = 90, .bytes = 64});
  EXPECT_DOUBLE_EQ(known.gbit_per_s, 9);
  EXPECT_DOUBLE_EQ(known.round_trip_us, 70);
  improve(known, {.a = 0, .b = 1, .round_trip_us = 60, .is_counted = true});
  EXPECT_DOUBLE_EQ(known.round_trip_us, 60);
  EXPECT_TRUE(known.is_counted);
  EXPECT_FALSE(known.is_right);
  EXPECT_EQ(known.attempts, 3);
}

TEST(PreflightLinks, the_rate_leaves_out_what_every_call_costs_and_what_may_pass_at_once) {
  // 100 MB/s and 0.5 ms for each call.
  EXPECT_NEAR(gbit_per_s({8'000'000, 80'500'000}, {1'000'000, 10'500'000}), 0.8, 1e-9);
  // 100 MB/s, and 0.5 MB pass at once.
  EXPECT_NEAR(gbit_per_s({8'000'000, 75'000'000}, {1'000'000, 5'000'000}), 0.8, 1e-9);
  EXPECT_NEAR(gbit_per_s({8'000'000, 80'000'000}, {0, 0}), 0.8, 0.011);
}

TEST(PreflightLinks, a_disturbed_exchange_does_not_invent_a_rate) {
  // The shorter exchange took too long: the difference would say 56 Gbit/s, or be negative.
  EXPECT_NEAR(gbit_per_s({8'000'000, 80'000'000}, {1'000'000, 79'000'000}), 0.81, 0.01);
  EXPECT_NEAR(gbit_per_s({8'000'000, 80'000'000}, {1'000'000, 90'000'000}), 0.8, 1e-9);
  // It took no time at all.
  EXPECT_GE(gbit_per_s({8'000'000, 80'000'000}, {4'000'000, 1}), 0.8 * 0.8 - 1e-9);
  EXPECT_EQ(gbit_per_s({8'000'000, 0}, {0, 0}), 0);
}

}  // namespace
}  // namespace rueda::preflight::links_test
