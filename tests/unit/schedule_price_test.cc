// Virtual time: exact where it can be worked out by hand, and a check on the closed formulas of the
// algorithms.
#include "rueda/schedule/price.h"

#include <gtest/gtest.h>

#include "rueda/schedule/builder.h"
#include "schedule_cases.h"

namespace rueda::schedule {
namespace {

std::vector<Schedule> build_all(const Spec& spec, const Topology& topology, std::string_view name) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(find_algorithm(spec.what, name)->build(spec, topology, rank));
  return schedules;
}

double priced(const Spec& spec, const Topology& topology, std::string_view name) {
  const auto price = price_us(spec, topology, build_all(spec, topology, name));
  EXPECT_TRUE(price.is_ok()) << price.status().why;
  return price.is_ok() ? price.value() : 0;
}

Topology hosts_with_10_us_and_1_gbps(int32_t hosts) {
  Topology topology = Topology::regular(hosts, 1);
  topology.remote = {.latency_us = 10, .bandwidth_gbps = 1};
  topology.reduce_gbps = 1e9;
  topology.chunk_bytes = 1 << 30;
  return topology;
}

TEST(schedule_price, a_message_takes_latency_and_bytes_over_bandwidth) {
  EXPECT_NEAR(priced(spec_of(Collective::kBroadcast, 2, 25'000), hosts_with_10_us_and_1_gbps(2), "binomial"),
              10 + 100, 0.1);
}

TEST(schedule_price, a_rank_sends_one_message_at_a_time) {
  // The root of three sends twice, one after the other with a gap of 2 us; the second one's flight ends last.
  EXPECT_NEAR(priced(spec_of(Collective::kBroadcast, 3, 25'000), hosts_with_10_us_and_1_gbps(3), "binomial"),
              100 + 2 + 100 + 10, 0.1);
}

TEST(schedule_price, a_ring_allreduce_takes_its_2_n_minus_1_steps) {
  const Spec spec = spec_of(Collective::kAllreduce, 4, 100'000);  // blocks of 100 us
  EXPECT_NEAR(priced(spec, hosts_with_10_us_and_1_gbps(4), "ring"), 6 * (10 + 100), 1);
}

TEST(schedule_price, chunks_overlap_along_a_chain) {
  const Spec spec = spec_of(Collective::kBroadcast, 8, 1'000'000);
  Topology topology = hosts_with_10_us_and_1_gbps(8);
  const double whole = priced(spec, topology, "chain");
  topology.chunk_bytes = 64 << 10;
  EXPECT_LT(priced(spec, topology, "chain"), whole / 4);
}

TEST(schedule_price, two_levels_pay_between_hosts_of_several_ranks) {
  const Spec spec = spec_of(Collective::kAllreduce, 16, 4'000'000);
  const Topology topology = Topology::regular(4, 4);
  EXPECT_LT(priced(spec, topology, "two_level"), priced(spec, topology, "direct") / 2);
}

TEST(schedule_price, hosts_that_send_to_one_at_once_slow_one_another_down) {
  const Spec spec =
      spec_of(Collective::kAllreduce, 8, 800'000);  // halves, quarters, eighths: 2800 us both ways
  const Topology topology = hosts_with_10_us_and_1_gbps(8);
  EXPECT_NEAR(priced(spec, topology, "halving_doubling"), 2 * (2800 + 3 * 10), 1);
  EXPECT_GT(priced(spec, topology, "direct"), 1.5 * 2 * 2800);
}

TEST(schedule_price, a_deadlock_has_no_price) {
  const Spec spec = spec_of(Collective::kAllreduce, 2, 64);
  const Topology topology = Topology::single_host(2);
  auto schedules = build_all(spec, topology, "recursive_doubling");
  for (Schedule& schedule : schedules) std::swap(schedule.steps[0], schedule.steps[1]);
  for (Schedule& schedule : schedules) schedule.steps[1].after = {0};  // both send after they have received
  EXPECT_FALSE(price_us(spec, topology, schedules).is_ok());
}

// The formulas decide which algorithm runs: they must not be far from what the schedules do.
TEST(schedule_price, formulas_agree_with_virtual_time_within_a_factor_of_three) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Topology& topology :
         {Topology::single_host(4), Topology::single_host(8), Topology::regular(2, 4),
          Topology::regular(4, 4), Topology::regular(8, 1)}) {
      for (int64_t count : {10, 10'000, 3'000'000}) {
        const Rank n = topology.size();
        Spec spec = spec_of(algorithm.what, n, count);
        if (!spec.counts.empty()) {
          std::fill(spec.counts.begin(), spec.counts.end(), std::max<int64_t>(1, count / n));
          if (algorithm.what == Collective::kReducescatter) spec.count = n * std::max<int64_t>(1, count / n);
        }
        if (algorithm.name == "adasum") spec.op = ReduceOp::kAdasum;
        const auto cost = algorithm.cost_us(spec, topology);
        if (!cost) continue;
        const double price = priced(spec, topology, algorithm.name);
        EXPECT_LT(*cost, 3 * price) << algorithm.name << " " << describe(spec, topology);
        EXPECT_GT(*cost, price / 3) << algorithm.name << " " << describe(spec, topology);
      }
    }
  }
}

}  // namespace
}  // namespace rueda::schedule
