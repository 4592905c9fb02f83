#include "launch/host_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <tuple>

namespace rueda::launch::host_order_test {
namespace {

using testing::ElementsAre;

std::vector<int> given(int hosts) {
  std::vector<int> order(static_cast<size_t>(hosts));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Few different rates and latencies, so that there are ties.
HostPairs random_pairs(int hosts, unsigned seed) {
  std::mt19937 random(seed);
  HostPairs pairs(hosts, {});
  for (int a = 0; a < hosts; ++a)
    for (int b = 0; b < a; ++b)
      pairs.set(a, b,
                {.rate = static_cast<double>(1 + random() % 6),
                 .latency_ns = static_cast<int64_t>(1000 + 500 * (random() % 3))});
  return pairs;
}

auto worth_of(const HostPairs& pairs, const std::vector<int>& order) {
  const RingLinks ring = ring_links(pairs, order);
  return std::tuple(ring.slowest_rate, -ring.latency_ns);
}

// Slow pairs, and fast ones between hosts that are `stride` apart.
HostPairs hidden_ring(int hosts, int stride) {
  HostPairs pairs(hosts, {.rate = 1, .latency_ns = 1000});
  for (int host = 0; host < hosts; ++host)
    pairs.set(host, (host + stride) % hosts, {.rate = 10, .latency_ns = 1000});
  return pairs;
}

TEST(HostOrder, is_the_first_of_the_best_of_all_orders) {
  for (int hosts = 4; hosts <= 7; ++hosts)
    for (unsigned seed = 0; seed < 30; ++seed) {
      const HostPairs pairs = random_pairs(hosts, seed);
      std::vector<int> order = given(hosts), best = order;
      while (std::next_permutation(order.begin() + 1, order.end()))
        if (worth_of(pairs, order) > worth_of(pairs, best)) best = order;
      EXPECT_EQ(best_host_order(pairs), best) << hosts << " hosts, seed " << seed;
    }
}

TEST(HostOrder, stays_where_all_links_are_alike) {
  for (const int hosts : {1, 2, 3, 4, 12, 13, 40})
    EXPECT_EQ(best_host_order(HostPairs(hosts, {.rate = 25, .latency_ns = 20})), given(hosts));
}

TEST(HostOrder, avoids_the_one_slow_link) {
  HostPairs pairs(4, {.rate = 25, .latency_ns = 20});
  pairs.set(1, 2, {.rate = 5, .latency_ns = 20});
  EXPECT_THAT(best_host_order(pairs), ElementsAre(0, 1, 3, 2));
  EXPECT_DOUBLE_EQ(ring_links(pairs, given(4)).slowest_rate, 5);
  EXPECT_EQ(ring_links(pairs, given(4)).from, 1);
  EXPECT_EQ(ring_links(pairs, given(4)).to, 2);
}

TEST(HostOrder, prefers_the_lower_latency_among_equally_fast_rings) {
  HostPairs pairs(4, {.rate = 25, .latency_ns = 20});
  pairs.set(0, 1, {.rate = 25, .latency_ns = 500});
  EXPECT_THAT(best_host_order(pairs), ElementsAre(0, 2, 1, 3));
}

TEST(HostOrder, finds_a_ring_of_fast_links_among_slow_ones) {
  for (const int hosts : {7, 12, 13, 41}) {
    const HostPairs pairs = hidden_ring(hosts, 5);
    EXPECT_DOUBLE_EQ(ring_links(pairs, best_host_order(pairs)).slowest_rate, 10) << hosts;
  }
}

TEST(HostOrder, of_many_hosts_is_an_order_and_never_worse_than_the_given_one) {
  const unsigned seeds = std::getenv("RUEDA_TEST_PROGRAMS") != nullptr ? 2 : 10;  // with a sanitizer
  for (int hosts = kExactHosts + 1; hosts <= 40; hosts += 3)
    for (unsigned seed = 0; seed < seeds; ++seed) {
      const HostPairs pairs = random_pairs(hosts, seed);
      std::vector<int> order = best_host_order(pairs);
      EXPECT_GE(worth_of(pairs, order), worth_of(pairs, given(hosts))) << hosts << " hosts, seed " << seed;
      EXPECT_EQ(order.front(), 0);
      std::ranges::sort(order);
      EXPECT_EQ(order, given(hosts));
    }
}

}  // namespace
}  // namespace rueda::launch::host_order_test
