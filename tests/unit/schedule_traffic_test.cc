// Several calls at once on one network under virtual time.
#include <gtest/gtest.h>

#include <cmath>

#include "rueda/schedule/traffic.h"

namespace rueda::schedule {
namespace traffic_test {

constexpr int64_t kMegabyte = 1'000'000;

Spec bytes_spec() {
  Spec spec;
  spec.dtype = DType::kUint8;
  spec.op = ReduceOp::kMax;
  spec.count = kMegabyte;
  return spec;
}

// Two hosts with one rank each; links of 1 GB/s and 10 us.
Network two_hosts() {
  Topology topology = Topology::regular(2, 1);
  topology.remote = {.latency_us = 10, .bandwidth_gbps = 1};
  return Network::uniform(topology);
}

// A message of 1 MB from member 0 to member 1.
std::shared_ptr<const TrafficPlan> one_message() {
  const Slice all{.buffer = Buffer::kInput, .begin = 0, .count = kMegabyte};
  Slice arrived = all;
  arrived.buffer = Buffer::kOutput;
  std::vector<Schedule> schedules(2);
  schedules[0].steps = {{.kind = StepKind::kSend, .peer = 1, .from = all}};
  schedules[1].steps = {{.kind = StepKind::kRecv, .peer = 0, .to = arrived}};
  return std::make_shared<const TrafficPlan>(bytes_spec(), std::move(schedules));
}

std::vector<Traffic::Ended> run(Traffic& traffic) {
  std::vector<Traffic::Ended> ended;
  while (std::isfinite(traffic.next_us())) traffic.advance(ended);
  return ended;
}

TEST(schedule_traffic, a_message_takes_its_bytes_and_the_latency) {
  Traffic traffic(two_hosts(), {0, 1}, 1);
  const auto call = traffic.open(one_message(), {0, 1});
  traffic.join(call, 0, 5);
  traffic.join(call, 1, 0);
  const auto ended = run(traffic);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].member, 0);
  EXPECT_DOUBLE_EQ(ended[0].at_us, 1005);
  EXPECT_DOUBLE_EQ(ended[1].at_us, 1015);
  EXPECT_DOUBLE_EQ(traffic.use().port_out[0], 1000);
  EXPECT_DOUBLE_EQ(traffic.use().port_in[1], 1000);
  EXPECT_DOUBLE_EQ(traffic.use().port_in[0], 0);
}

TEST(schedule_traffic, what_arrives_early_waits_for_the_member_that_is_late) {
  Traffic traffic(two_hosts(), {0, 1}, 1);
  const auto call = traffic.open(one_message(), {0, 1});
  traffic.join(call, 0, 0);
  traffic.join(call, 1, 7000);
  const auto ended = run(traffic);
  EXPECT_DOUBLE_EQ(ended[0].at_us, 1000);
  EXPECT_DOUBLE_EQ(ended[1].at_us, 7000);
}

TEST(schedule_traffic, two_calls_share_a_port_one_message_after_the_other) {
  Traffic traffic(two_hosts(), {0, 1}, 1);
  const auto plan = one_message();
  const auto first = traffic.open(plan, {0, 1}), second = traffic.open(plan, {0, 1});
  EXPECT_NE(first, second);
  for (const auto call : {first, second})
    for (const Rank member : {0, 1}) traffic.join(call, member, 0);
  double last = 0;
  for (const auto& one : run(traffic)) last = std::max(last, one.at_us);
  EXPECT_DOUBLE_EQ(last, 1000 + 0.2 * 10 + 1000 + 10)
      << "the bytes of both, a gap, and the latency of the second";
}

TEST(schedule_traffic, hosts_of_one_machine_wait_for_its_cores) {
  CoreCosts costs;
  costs.byte_ns = 3;  // 3 ms for each end of the message
  Traffic apart(two_hosts(), {0, 1}, 1, costs);
  costs.machine_of = {0, 0};
  costs.cores = {1};
  Traffic together(two_hosts(), {0, 1}, 1, costs);
  // Two messages, one each way.
  const auto there_and_back = [](Traffic& traffic) {
    const auto plan = one_message();
    const auto there = traffic.open(plan, {0, 1}), back = traffic.open(plan, {1, 0});
    for (const auto call : {there, back})
      for (const Rank member : {0, 1}) traffic.join(call, member, 0);
    double last = 0;
    for (const auto& one : run(traffic)) last = std::max(last, one.at_us);
    return last;
  };
  EXPECT_DOUBLE_EQ(there_and_back(apart), 3000 + 1000 + 10 + 3000);
  EXPECT_DOUBLE_EQ(there_and_back(together), 4 * 3000) << "the core is never idle";
  EXPECT_DOUBLE_EQ(together.use().cores[0], 4 * 3000);
}

TEST(schedule_traffic, a_call_that_some_member_never_joins_never_ends_and_does_not_hold_others_up) {
  Traffic traffic(two_hosts(), {0, 1}, 1);
  const auto plan = one_message();
  const auto never = traffic.open(plan, {0, 1}), whole = traffic.open(plan, {0, 1});
  traffic.join(never, 1, 0);
  traffic.join(whole, 0, 0);
  traffic.join(whole, 1, 0);
  for (const auto& one : run(traffic)) EXPECT_EQ(one.call, whole);
}

// Four hosts with one rank each, two at each of two switches, or all at switches of their own; links of 1
// GB/s and 10 us.
Network four_hosts(std::vector<Tier> tiers) {
  Topology topology = Topology::regular(4, 1);
  topology.remote = {.latency_us = 10, .bandwidth_gbps = 1};
  Network network = Network::uniform(topology);
  network.tiers = std::move(tiers);
  EXPECT_TRUE(check_network(network, 4).is_ok());
  return network;
}
const Tier kHalf{.switch_of = {0, 0, 1, 1}, .uplink_gbps = {0.5, 0.5}};

// When each message of 1 MB comes that leaves at 0.
std::vector<double> arrivals(const Network& network, const std::vector<std::pair<Rank, Rank>>& messages) {
  Traffic traffic(network, {0, 1, 2, 3}, 1);
  std::vector<double> came(messages.size());
  const auto plan = one_message();
  for (const auto& [from, to] : messages) {
    const auto call = traffic.open(plan, {from, to});
    for (const Rank member : {0, 1}) traffic.join(call, member, 0);
  }
  for (const auto& one : run(traffic))
    if (one.member == 1) came[one.call - 1] = one.at_us;
  return came;
}

TEST(schedule_traffic, what_leaves_a_switch_shares_its_uplink_and_nothing_else_does) {
  const Network network = four_hosts({kHalf});
  EXPECT_EQ(arrivals(network, {{0, 2}}), (std::vector<double>{2010})) << "half of the rate";
  EXPECT_EQ(arrivals(network, {{0, 1}, {3, 2}}), (std::vector<double>{1010, 1010}));
  EXPECT_EQ(arrivals(network, {{0, 2}, {1, 3}}), (std::vector<double>{2010, 4010})) << "up, one by one";
  EXPECT_EQ(arrivals(network, {{0, 2}, {2, 0}}), (std::vector<double>{2010, 2010})) << "each way";
}

TEST(schedule_traffic, an_uplink_that_carries_what_the_ports_do_changes_nothing) {
  const Network network = four_hosts({{.switch_of = {0, 0, 1, 1}, .uplink_gbps = {2, 2}}});
  EXPECT_EQ(arrivals(network, {{0, 2}, {1, 3}}), (std::vector<double>{1010, 1010}));
}

TEST(schedule_traffic, a_neighbour_is_not_held_up_by_what_waits_in_an_uplink) {
  // Host 2 gets one message over the uplink, after another one, and one from host 3.
  const std::vector<double> came = arrivals(four_hosts({kHalf}), {{0, 3}, {1, 2}, {3, 2}});
  EXPECT_EQ(came, (std::vector<double>{2010, 4010, 1010}));
}

TEST(schedule_traffic, each_tier_between_two_hosts_is_crossed) {
  const Tier single{.switch_of = {0, 1, 2, 3}, .uplink_gbps = {1, 1, 1, 1}};
  const Tier quarter{.switch_of = {0, 0, 1, 1}, .uplink_gbps = {0.25, 0.25}};
  const Network network = four_hosts({single, quarter});
  EXPECT_EQ(arrivals(network, {{0, 1}}), (std::vector<double>{1010})) << "the first tier alone";
  EXPECT_EQ(arrivals(network, {{0, 2}}), (std::vector<double>{4010}));
  Traffic traffic(network, {0, 1, 2, 3}, 1);
  const auto call = traffic.open(one_message(), {0, 2});
  for (const Rank member : {0, 1}) traffic.join(call, member, 0);
  run(traffic);
  EXPECT_EQ(traffic.use().uplinks, (std::vector<double>{1000, 0, 0, 0, 0, 1000, 0, 0, 4000, 0, 0, 4000}))
      << "up and down of four switches, and of two above them";
}

TEST(schedule_traffic, tiers_that_contradict_themselves_are_refused) {
  Network network = four_hosts({kHalf});
  const auto is_refused = [&](std::vector<Tier> tiers) {
    network.tiers = std::move(tiers);
    return !check_network(network, 4).is_ok();
  };
  EXPECT_TRUE(is_refused({{.switch_of = {0, 0, 1}, .uplink_gbps = {1, 1}}})) << "a host without a switch";
  EXPECT_TRUE(is_refused({{.switch_of = {0, 0, 1, 2}, .uplink_gbps = {1, 1}}})) << "no such switch";
  EXPECT_TRUE(is_refused({{.switch_of = {0, 0, 1, 1}, .uplink_gbps = {1, 0}}}));
  EXPECT_TRUE(is_refused({kHalf, {.switch_of = {0, 1, 1, 1}, .uplink_gbps = {1, 1}}}))
      << "0 and 1 part again";
}

}  // namespace traffic_test
}  // namespace rueda::schedule
