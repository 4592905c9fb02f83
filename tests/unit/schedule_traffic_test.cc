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

}  // namespace traffic_test
}  // namespace rueda::schedule
