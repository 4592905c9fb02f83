// Which size of a bucket follows from measured times of NCCL.
#include "rueda/backend/nccl/probe.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace rueda::nccl::backend_nccl_probe_test {
namespace {

constexpr int64_t kProbeMost = 64 << 20;

// Measures a fabric on which calls of so many bytes take so many microseconds; `turn` counts the calls.
Probe probe_of(const std::function<double(size_t bytes, int turn)>& us) {
  Probe probe;
  for (int turn = 0; const std::optional<size_t> bytes = probe.next(); ++turn)
    probe.took(static_cast<Nanos>(us(*bytes, turn) * 1000));
  return probe;
}

Probe linear(double latency_us, double gbps) {
  return probe_of([=](size_t bytes, int) { return latency_us + static_cast<double>(bytes) / (gbps * 1e3); });
}

TEST(NcclProbe, a_bucket_carries_four_times_what_the_fabric_carries_during_its_latency) {
  EXPECT_EQ(linear(30, 250).bucket_bytes(kProbeMost), 32 << 20);  // 30 MB: GPUs of one host
  EXPECT_EQ(linear(60, 20).bucket_bytes(kProbeMost), 8 << 20);    // 4.8 MB: 200 Gbit/s
  EXPECT_EQ(linear(100, 1).bucket_bytes(kProbeMost), 1 << 20);    // 0.4 MB: 10 Gbit/s
  EXPECT_NEAR(linear(30, 250).latency_us(), 30, 0.1);
  EXPECT_NEAR(linear(30, 250).us_per_byte(), 1 / 250e3, 1e-7);
}

TEST(NcclProbe, a_bucket_is_within_its_limits) {
  EXPECT_EQ(linear(10'000, 250).bucket_bytes(kProbeMost), kProbeMost);
  EXPECT_EQ(linear(10'000, 250).bucket_bytes(5 << 20), 5 << 20);
  EXPECT_EQ(linear(0.1, 0.01).bucket_bytes(kProbeMost), 1 << 20);
}

TEST(NcclProbe, first_calls_and_late_members_do_not_count) {
  const Probe probe = probe_of([](size_t bytes, int turn) {
    const double late = turn < 3 ? 500'000 : turn < 6 ? 3000 : 0;
    return 60 + static_cast<double>(bytes) / 20e3 + late;
  });
  EXPECT_EQ(probe.bucket_bytes(kProbeMost), linear(60, 20).bucket_bytes(kProbeMost));
}

TEST(NcclProbe, the_protocol_of_large_calls_has_a_latency_of_its_own) {
  const Probe probe =
      probe_of([](size_t bytes, int) { return bytes < 1024 ? 10 : 60 + static_cast<double>(bytes) / 20e3; });
  EXPECT_NEAR(probe.latency_us(), 60, 0.1);
}

TEST(NcclProbe, bytes_that_cost_nothing_measurable_fill_the_largest_bucket) {
  EXPECT_EQ(probe_of([](size_t, int) { return 20; }).bucket_bytes(kProbeMost), kProbeMost);
  EXPECT_EQ(probe_of([](size_t bytes, int) { return bytes > 1 << 20 ? 20 : 25; }).bucket_bytes(kProbeMost),
            kProbeMost);
}

TEST(NcclProbe, a_call_that_is_not_waited_for_leaves_nothing_known_and_all_calls_are_made) {
  Probe probe;
  std::vector<size_t> sizes;
  while (const std::optional<size_t> bytes = probe.next()) {
    sizes.push_back(*bytes);
    if (sizes.size() == 7)
      probe.give_up();
    else
      probe.took(1000);
  }
  EXPECT_EQ(sizes.size(), Probe::kCalls);
  EXPECT_EQ(probe.bucket_bytes(kProbeMost), 0);
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_probe_test
