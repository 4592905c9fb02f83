// Ports that let bytes through faster after a pause.
#include <gtest/gtest.h>

#include <cmath>

#include "rueda/schedule/token_bucket.h"
#include "rueda/schedule/traffic.h"

namespace rueda::schedule {
namespace token_bucket_test {

constexpr double kMegabyte = 1e6;

// 1 Gbit/s, and 1 MB at 10 Gbit/s: bytes per microsecond are 125 and 1250.
TokenBucket usual() { return {0.125, kMegabyte, 1.25}; }

TEST(schedule_token_bucket, without_a_burst_it_has_one_rate) {
  TokenBucket port(0.125, 0, 0);
  EXPECT_DOUBLE_EQ(port.pass(kMegabyte, 0), 8000);
  EXPECT_DOUBLE_EQ(port.pass(kMegabyte, 1e6), 1e6 + 8000);
}

TEST(schedule_token_bucket, what_the_credit_covers_goes_at_the_peak) {
  TokenBucket port = usual();
  EXPECT_DOUBLE_EQ(port.pass(kMegabyte, 0), 800);
  // A tenth of it came back meanwhile, and while that goes at the peak, a ninth of it again: 111,111 bytes.
  EXPECT_NEAR(port.pass(kMegabyte, 800), 800 + 111'111.1 / 1250 + 888'888.9 / 125, 0.01);
}

TEST(schedule_token_bucket, credit_comes_back_at_the_rate_and_up_to_the_burst) {
  TokenBucket port = usual();
  const double empty = port.pass(10 * kMegabyte, 0);
  EXPECT_NEAR(port.pass(0.45 * kMegabyte, empty + 0.5 * 8000) - (empty + 0.5 * 8000), 360, 1e-6)
      << "half of the credit is there";
  const double later = empty + 1e9;
  EXPECT_NEAR(port.pass(2 * kMegabyte, later) - later, kMegabyte / 0.9 / 1250 + (2 - 1 / 0.9) * 8000, 0.01)
      << "no more than the burst";
}

TEST(schedule_token_bucket, over_long_times_no_more_passes_than_the_rate_and_one_burst) {
  TokenBucket port = usual();
  double end = 0;
  for (int i = 0; i < 1000; ++i) end = port.pass(12'345, end + (i % 7) * 10);
  EXPECT_LE(1000 * 12'345.0, kMegabyte + 125 * end + 1);
}

// A message of bytes from the first of two hosts to the second.
std::shared_ptr<const TrafficPlan> message(int64_t bytes) {
  Spec spec;
  spec.dtype = DType::kUint8;
  spec.op = ReduceOp::kMax;
  spec.count = bytes;
  std::vector<Schedule> schedules(2);
  schedules[0].steps = {{.kind = StepKind::kSend, .peer = 1, .from = {Buffer::kInput, 0, bytes}}};
  schedules[1].steps = {{.kind = StepKind::kRecv, .peer = 0, .to = {Buffer::kOutput, 0, bytes}}};
  return std::make_shared<const TrafficPlan>(spec, std::move(schedules));
}

Network two_hosts() {
  Topology topology = Topology::regular(2, 1);
  topology.remote = {.latency_us = 0, .bandwidth_gbps = 1.25};
  Network network = Network::uniform(topology);
  network.port_gbps = {0.125, 0.125};
  network.bursts.assign(2, {.bytes = kMegabyte, .gbps = 1.25});
  return network;
}

// When each of these messages, which are ready at these times, has come.
std::vector<double> arrivals(const std::vector<std::pair<int64_t, double>>& messages) {
  Traffic traffic(two_hosts(), {0, 1}, 1);
  for (const auto& [bytes, at] : messages) {
    const auto call = traffic.open(message(bytes), {0, 1});
    for (const Rank member : {0, 1}) traffic.join(call, member, at);
  }
  std::vector<Traffic::Ended> ended;
  while (std::isfinite(traffic.next_us())) traffic.advance(ended);
  std::vector<double> came;
  for (const auto& one : ended)
    if (one.member == 1) came.push_back(one.at_us);
  return came;
}

TEST(schedule_token_bucket, ports_spend_their_credit_and_get_it_back_between_calls) {
  const std::vector<double> came = arrivals({{1'000'000, 0}, {1'000'000, 800}, {1'000'000, 1e6}});
  ASSERT_EQ(came.size(), 3U);
  EXPECT_NEAR(came[0], 800, 1);
  EXPECT_NEAR(came[1], 8000, 1) << "by then 2 MB, of which one was credit";
  EXPECT_NEAR(came[2], 1e6 + 800, 1);
}

TEST(schedule_token_bucket, bursts_that_are_no_faster_than_their_ports_are_refused) {
  Network network = two_hosts();
  EXPECT_TRUE(check_network(network, 2).is_ok());
  network.bursts[1].gbps = 0.1;
  EXPECT_FALSE(check_network(network, 2).is_ok());
  network.bursts.pop_back();
  EXPECT_FALSE(check_network(network, 2).is_ok());
}

}  // namespace token_bucket_test
}  // namespace rueda::schedule
