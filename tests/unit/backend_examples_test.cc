// The worked examples at the top of local/reduction.h, nccl/levels.h and nccl/probe.h.
#include <gtest/gtest.h>

#include "rueda/backend/local/cost.h"
#include "rueda/backend/nccl/levels.h"
#include "rueda/backend/nccl/probe.h"

namespace rueda::backend::examples_test {
namespace {

constexpr size_t kFloat = sizeof(float);
constexpr MemoryCost kMemory{.latency_us = 1, .copy_gbps = 8, .reduce_gbps = 6};

TEST(LocalExample, the_size_decides_the_algorithm_of_four_ranks_and_its_time) {
  EXPECT_EQ(local_algorithm(24 * kFloat, 4, true), LocalAlgorithm::kInline);
  EXPECT_NEAR(local_us(24 * kFloat, 4, LocalAlgorithm::kInline, kMemory), 1.4, 0.1);
  EXPECT_EQ(local_algorithm(16'384 * kFloat, 4, false), LocalAlgorithm::kOneShot);
  EXPECT_NEAR(local_us(16'384 * kFloat, 4, LocalAlgorithm::kOneShot, kMemory), 1.4 + 8.2 + 32.8, 0.1);
  EXPECT_EQ(local_algorithm(16'385 * kFloat, 4, false), LocalAlgorithm::kStaged);
  constexpr size_t kLarge = (1 << 20) * kFloat;
  EXPECT_EQ(kLarge / kChunkBytes, 32u);
  EXPECT_EQ(local_algorithm(kLarge, 4, false), LocalAlgorithm::kStaged);
  EXPECT_NEAR(local_us(kLarge, 4, LocalAlgorithm::kStaged, kMemory), 1'371, 1);
  EXPECT_EQ(local_algorithm(kLarge, 4, true), LocalAlgorithm::kRegistered);
  EXPECT_NEAR(local_us(kLarge, 4, LocalAlgorithm::kRegistered, kMemory), 920, 1);
}

TEST(NcclExample, eight_members_on_two_hosts_reduce_1002_elements) {
  std::vector<float> values(1'002);
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  const nccl::DeviceRun run{.input = bytes, .output = bytes, .count = 1'002};
  schedule::Spec spec;
  spec.what = Collective::kAllreduce;
  spec.dtype = DType::kFloat32;
  spec.op = ReduceOp::kSum;
  const auto share_of_member = [](Rank me) { return nccl::share_of(1'002, me, 4); };
  EXPECT_EQ(share_of_member(1), (backend::ElementRange{.begin = 250, .count = 250}));
  EXPECT_EQ(share_of_member(3), (backend::ElementRange{.begin = 750, .count = 252}));
  const std::vector<nccl::Step> down = nccl::reducing_steps_of(spec, run, 3, 4);
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[0].function, nccl::Function::kReduceScatter);
  EXPECT_EQ(down[0].count, 250u);
  EXPECT_EQ(down[1].function, nccl::Function::kReduce);
  EXPECT_EQ(down[1].count, 2u);
  const std::vector<nccl::Step> up = nccl::gathering_steps_of(spec, run, 3, 4);
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(up[0].function, nccl::Function::kAllGather);
  EXPECT_EQ(up[0].count, 250 * kFloat) << "bytes";
  EXPECT_EQ(up[1].function, nccl::Function::kBroadcast);
  EXPECT_EQ(up[1].count, 2 * kFloat);
  schedule::Topology topology;
  topology.host_of = {0, 0, 0, 0, 1, 1, 1, 1};
  const Group group{.id = 0, .epoch = 1, .members = {0, 1, 2, 3, 4, 5, 6, 7}, .me = 5};
  const auto made = nccl::levels_of(group, topology);
  ASSERT_TRUE(made.levels);
  EXPECT_EQ(made.levels->inside.members, (std::vector<Rank>{4, 5, 6, 7}));
  EXPECT_EQ(made.levels->between.members, (std::vector<Rank>{1, 5}));
}

TEST(NcclExample, the_probe_finds_a_bucket_for_20_us_and_50_GB_per_second) {
  nccl::Probe probe;
  while (const std::optional<size_t> bytes = probe.next())
    probe.took(*bytes == nccl::Probe::kSmall ? 20 * kMicrosecond
                                             : 20 * kMicrosecond + static_cast<Nanos>(*bytes) / 50);
  EXPECT_NEAR(probe.latency_us(), 20, 0.1);
  EXPECT_NEAR(probe.us_per_byte(), 1 / 50e3, 1e-7);
  EXPECT_EQ(probe.bucket_bytes(64 << 20), 4 << 20);
}

}  // namespace
}  // namespace rueda::backend::examples_test
