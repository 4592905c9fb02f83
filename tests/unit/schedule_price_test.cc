// Virtual time: exact if it can be worked out by hand. It also checks the closed formulas of the algorithms.
#include "rueda/schedule/price.h"

#include <gtest/gtest.h>

#include "rueda/schedule/builder.h"
#include "schedule_cases.h"

namespace rueda::schedule::price_test {
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

// All ranks start late, each by its own time, on a given network.
std::vector<double> finished(const Spec& spec, const Topology& topology, const Network& network,
                             std::string_view name, std::vector<double> starts_us) {
  starts_us.resize(static_cast<size_t>(topology.size()), 0);
  const auto done = finish_times_us(spec, topology, network, build_all(spec, topology, name), starts_us);
  EXPECT_TRUE(done.is_ok()) << done.status().why;
  return done.is_ok() ? done.value() : std::vector<double>(starts_us.size(), 0);
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

TEST(schedule_price, hosts_that_send_to_one_at_once_slow_one_another_down_once_its_queue_is_full) {
  const Topology topology = hosts_with_10_us_and_1_gbps(8);
  // Halves, quarters, eighths: 2800 us both ways.
  EXPECT_NEAR(priced(spec_of(Collective::kAllreduce, 8, 800'000), topology, "halving_doubling"),
              2 * (2800 + 3 * 10), 1);
  // Sevenths of 16 MB both ways, and 1.05 times as long.
  EXPECT_NEAR(priced(spec_of(Collective::kAllreduce, 8, 4'000'000), topology, "direct"), 1.05 * 2 * 14'000,
              200);
  EXPECT_NEAR(priced(spec_of(Collective::kAllreduce, 8, 80'000), topology, "direct"), 2 * 280, 60);
}

TEST(schedule_price, a_slow_link_to_a_rank_holds_up_nothing_that_others_send_to_it) {
  Topology topology = hosts_with_10_us_and_1_gbps(4);
  topology.chunk_bytes = 64 << 10;
  Network network = Network::uniform(topology);
  network.link(2, 3).bandwidth_gbps = network.link(3, 2).bandwidth_gbps = 0.25;
  const auto done =
      finished(spec_of(Collective::kAllreduce, 4, 4'000'000), topology, network, "direct", {0, 0, 0, 0});
  EXPECT_NEAR(*std::ranges::max_element(done), 2 * 16'000, 1000);  // a quarter of 16 MB both ways
}

// By the textbook they took 1.6 to 1.8 times as long, because some hosts took in the whole buffer of another
// one.
TEST(schedule_price, odd_numbers_of_hosts_take_about_as_long_as_the_power_of_two_above_them) {
  for (const int32_t hosts : {7, 15, 127}) {
    const auto us = [](int32_t of) {
      const Spec spec = spec_of(Collective::kAllreduce, of, 1'000'000);
      return priced(spec, Topology::regular(of, 1), "halving_doubling");
    };
    EXPECT_LT(us(hosts), 1.25 * us(hosts + 1)) << hosts;
  }
}

TEST(schedule_price, a_deadlock_has_no_price) {
  const Spec spec = spec_of(Collective::kAllreduce, 2, 64);
  const Topology topology = Topology::single_host(2);
  auto schedules = build_all(spec, topology, "recursive_doubling");
  for (Schedule& schedule : schedules) std::swap(schedule.steps[0], schedule.steps[1]);
  for (Schedule& schedule : schedules) schedule.steps[1].after = {0};  // both send after they have received
  EXPECT_FALSE(price_us(spec, topology, schedules).is_ok());
}

// Recorded, so that a change of the rules is seen here.
TEST(schedule_price, a_uniform_network_and_starts_at_zero_give_the_recorded_prices) {
  struct Recorded {
    Topology topology;
    Collective what;
    std::string_view name;
    int64_t count;
    double us;
  };
  const Topology four = Topology::single_host(4), twice_three = Topology::regular(2, 3),
                 eight = Topology::regular(8, 1), uneven = hosts_of({0, 1, 1, 2, 0});
  const std::vector<Recorded> all = {
      {four, Collective::kAllreduce, "direct", 100, 2.9460000000000006},
      {four, Collective::kAllreduce, "direct", 1000000, 952.60800000000108},
      {four, Collective::kAllreduce, "ring", 1000000, 813.06400000000065},
      {four, Collective::kBroadcast, "chain", 1000000, 1169.6666666666663},
      {twice_three, Collective::kAllreduce, "direct", 100, 85.098666666666659},
      {twice_three, Collective::kAllreduce, "direct", 1000000, 12036.000000000004},
      {twice_three, Collective::kAllreduce, "two_level", 100, 63.194000000000003},
      {twice_three, Collective::kAllreduce, "two_level", 1000000, 4366.536000000001},
      {twice_three, Collective::kAllreduce, "halving_doubling", 1000000, 9520.3466666666682},
      {twice_three, Collective::kAllreduce, "ring", 1000000, 6870.6880000000019},
      {twice_three, Collective::kAlltoall, "pairwise", 1000000, 622.58400000000006},
      {eight, Collective::kAllreduce, "direct", 1000000, 7344.5183999999981},
      {eight, Collective::kAllreduce, "two_level", 1000000, 7318.1941333333316},
      {eight, Collective::kAllreduce, "halving_doubling", 1000000, 8653.4986666666664},
      {eight, Collective::kBroadcast, "chain", 1000000, 5872.8640000000032},
      {eight, Collective::kAlltoall, "pairwise", 100, 48.027999999999999},
      {uneven, Collective::kAllreduce, "direct", 1000000, 9636.0000000000055},
      {uneven, Collective::kAllreduce, "two_level", 1000000, 6032.712000000005},
      {uneven, Collective::kAllreduce, "halving_doubling", 1000000, 13551.423999999992},
      {uneven, Collective::kAllreduce, "ring", 100, 158.88533333333334},
      {uneven, Collective::kBroadcast, "chain", 100, 62.899999999999991},
      {uneven, Collective::kAlltoall, "pairwise", 1000000, 835.99199999999996},
  };
  for (const Recorded& one : all) {
    const Spec spec = spec_of(one.what, one.topology.size(), one.count);
    EXPECT_DOUBLE_EQ(priced(spec, one.topology, one.name), one.us)
        << one.name << " " << describe(spec, one.topology);
  }
}

TEST(schedule_price, a_late_rank_delays_exactly_what_depends_on_it) {
  // Along a chain from rank 0 in whole messages: 0 -> 1 -> 2 -> 3, a hop of 110 us.
  Spec spec = spec_of(Collective::kBroadcast, 4, 25'000);
  spec.root = 0;
  const Topology topology = hosts_with_10_us_and_1_gbps(4);
  const Network network = Network::uniform(topology);
  const std::vector<double> together = finished(spec, topology, network, "chain", {});
  EXPECT_NEAR(together[3], 3 * 110, 1);
  // What arrives before rank 2's turn waits for it: 220 us that it would have waited anyway.
  EXPECT_EQ(finished(spec, topology, network, "chain", {0, 0, 200, 0}), together);
  const std::vector<double> late = finished(spec, topology, network, "chain", {0, 0, 1000, 0});
  EXPECT_EQ(late[0], together[0]);
  EXPECT_EQ(late[1], together[1]);
  EXPECT_NEAR(late[3], 1000 + 110, 1);
  // The root delays all ranks by the whole time that it is late.
  const std::vector<double> all_late = finished(spec, topology, network, "chain", {1000, 0, 0, 0});
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_NEAR(all_late[rank], together[rank] + 1000, 1e-6);
}

TEST(schedule_price, an_allreduce_ends_no_sooner_than_its_latest_rank_could_alone) {
  const Spec spec = spec_of(Collective::kAllreduce, 8, 100'000);
  const Topology topology = Topology::regular(4, 2);
  const auto schedules = build_all(spec, topology, "two_level");
  const double together = price_us(spec, topology, schedules).value();
  for (size_t rank = 0; rank < 8; ++rank) {
    std::vector<double> starts(8, 0);
    starts[rank] = 10'000;
    const double late = price_us(spec, topology, Network::uniform(topology), schedules, starts).value();
    EXPECT_GT(late, 10'000);
    EXPECT_LE(late, 10'000 + together + 1e-6);
  }
}

TEST(schedule_price, one_slow_pair_of_hosts_slows_the_schedules_that_use_it) {
  const Topology topology = hosts_with_10_us_and_1_gbps(4);
  Network network = Network::uniform(topology);
  network.link(0, 3).bandwidth_gbps = network.link(3, 0).bandwidth_gbps = 0.1;
  network.link(0, 3).latency_us = network.link(3, 0).latency_us = 100;
  Spec chain = spec_of(Collective::kBroadcast, 4, 25'000);
  chain.root = 0;  // 0 -> 1 -> 2 -> 3 does not use the pair
  const Network uniform = Network::uniform(topology);
  EXPECT_EQ(finished(chain, topology, network, "chain", {}), finished(chain, topology, uniform, "chain", {}));
  const Spec ring = spec_of(Collective::kAllreduce, 4, 100'000);  // 3 -> 0: six blocks of 100 us, now of 1000
  const double slow = std::ranges::max(finished(ring, topology, network, "ring", {}));
  EXPECT_GT(slow, 6 * 1000);
  EXPECT_LT(slow, 6 * (1000 + 100));
}

TEST(schedule_price, a_slow_direction_of_a_pair_leaves_the_other_alone) {
  const Topology topology = hosts_with_10_us_and_1_gbps(2);
  Network network = Network::uniform(topology);
  network.link(1, 0).bandwidth_gbps = 0.1;
  Spec spec = spec_of(Collective::kBroadcast, 2, 25'000);
  spec.root = 0;
  EXPECT_NEAR(std::ranges::max(finished(spec, topology, network, "binomial", {})), 10 + 100, 0.1);
  spec.root = 1;
  EXPECT_NEAR(std::ranges::max(finished(spec, topology, network, "binomial", {})), 10 + 1000, 0.1);
}

TEST(schedule_price, ranks_of_a_host_share_its_port) {
  // Four ranks of host 0 send 100 us each to a rank of host 1: links of their own would not matter.
  Topology topology = Topology::regular(2, 4);
  topology.remote = {.latency_us = 10, .bandwidth_gbps = 1};
  Spec spec = spec_of(Collective::kAlltoall, 8, 0);
  std::ranges::fill(spec.counts, 0);
  for (size_t rank = 0; rank < 4; ++rank) spec.counts[rank * 8 + rank + 4] = 25'000;
  EXPECT_NEAR(priced(spec, topology, "pairwise"), 400 + 10, 30);
  Network network = Network::uniform(topology);
  network.port_gbps[0] = 0.5;
  EXPECT_NEAR(std::ranges::max(finished(spec, topology, network, "pairwise", {})), 800 + 10, 30);
}

TEST(schedule_price, a_fast_port_serves_several_slow_links_at_once) {
  // Host 0 sends 100 us to each of three others.
  const Topology topology = hosts_with_10_us_and_1_gbps(4);
  Spec spec = spec_of(Collective::kAlltoall, 4, 0);
  std::ranges::fill(spec.counts, 0);
  Network network = Network::uniform(topology);
  network.port_gbps.assign(4, 10);
  for (size_t to : {1, 2, 3}) spec.counts[to] = 25'000;
  // What a slow link has not carried yet waits on the way; it holds up nothing that goes to others …
  EXPECT_NEAR(std::ranges::max(finished(spec, topology, network, "pairwise", {})), 100 + 10 + 20, 15);
  // … of another rank of the host either. A port that is no faster than a link sends one after the other.
  Topology threes = Topology::regular(2, 3);
  threes.host_of = {0, 0, 0, 1, 2, 3};
  threes.remote = topology.remote;
  Spec apart = spec_of(Collective::kAlltoall, 6, 0);
  std::ranges::fill(apart.counts, 0);
  for (size_t rank = 0; rank < 3; ++rank) apart.counts[rank * 6 + rank + 3] = 25'000;
  EXPECT_NEAR(priced(apart, threes, "pairwise"), 310, 10);
  network = Network::uniform(threes);
  network.port_gbps[0] = 10;
  EXPECT_NEAR(std::ranges::max(finished(apart, threes, network, "pairwise", {})), 100 + 10 + 20, 15);
}

TEST(schedule_price, refuses_what_does_not_describe_the_topology) {
  const Topology topology = hosts_with_10_us_and_1_gbps(2);
  const Spec spec = spec_of(Collective::kAllreduce, 2, 64);
  const auto schedules = build_all(spec, topology, "ring");
  const std::vector<double> starts(2, 0);
  const auto is_refused = [&](const Network& network, const std::vector<double>& when) {
    const auto price = price_us(spec, topology, network, schedules, when);
    return !price.is_ok() && price.status().code == Code::kInvalidArgument;
  };
  const Network good = Network::uniform(topology);
  EXPECT_FALSE(is_refused(good, starts));
  EXPECT_TRUE(is_refused(good, {0}));
  EXPECT_TRUE(is_refused(good, {0, -1}));
  EXPECT_TRUE(is_refused(Network::uniform(hosts_with_10_us_and_1_gbps(3)), starts));
  Network dead = good;
  dead.link(0, 1).bandwidth_gbps = 0;
  EXPECT_TRUE(is_refused(dead, starts));
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
}  // namespace rueda::schedule::price_test
