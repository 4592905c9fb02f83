// What NCCL's own table says of its calls.
#include <gtest/gtest.h>

#include "simulate/nccl_price.h"
#include "simulate/simulate.h"

namespace rueda::simulate {
namespace nccl_price_test {

constexpr NcclLinks kTwoHosts{
    .ranks = 8, .hosts = 2, .is_nvlink = true, .within_gbps = 100, .network_gbps = 10};

TEST(simulate_nccl_price, a_ring_has_its_steps_and_its_bytes) {
  const NcclPrice large = nccl_allreduce(1e9, kTwoHosts);
  EXPECT_EQ(large.algorithm, "tree") << "fewer bytes cross the network";
  NcclLinks one = kTwoHosts;
  one.hosts = 1;
  const NcclPrice within = nccl_allreduce(1e9, one);
  EXPECT_EQ(within.algorithm, "ring");
  EXPECT_NEAR(within.latency_us, 8.4 + 14 * 3.4, 1e-9);
  EXPECT_NEAR(within.transfer_us, 1.75 * 1e9 / 100e3, 1e-6);
  NcclLinks two = kTwoHosts;
  two.ranks = 2;
  const NcclPrice pair = nccl_allreduce(1e9, two);
  EXPECT_EQ(pair.algorithm, "ring");
  EXPECT_NEAR(pair.latency_us, 8.4 + 2 * 9.6, 1e-9);
  EXPECT_NEAR(pair.transfer_us, 1e9 / 10e3, 1e-6);
}

TEST(simulate_nccl_price, a_tree_is_sooner_where_many_hosts_share_little) {
  NcclLinks many = kTwoHosts;
  many.ranks = 512;
  many.hosts = 64;
  const NcclPrice small = nccl_allreduce(1024, many);
  EXPECT_EQ(small.algorithm, "tree");
  EXPECT_NEAR(small.latency_us, 8.4 + 2 * (7 * 3.4 + 6 * 9.6), 1e-9);
  many.ranks = 1;
  EXPECT_EQ(nccl_allreduce(1e9, many).transfer_us, 0);
}

TEST(simulate_nccl_price, a_job_on_gpus_is_bound_by_its_ports_and_slows_its_kernels) {
  Request request;
  request.model = workload::find_model("resnet50").value();
  request.steps = 4;
  const auto predict = [&](const char* rate, const char* slow) {
    const std::string json =
        std::string(R"({"hosts": 2, "ranks_per_host": 4, "gpus": "pcie", "link": {"rate": ")") + rate +
        R"("}, "costs": {"slow_share": )" + slow + "}}";
    request.cluster = parse_cluster(json, "c.json").value();
    return simulate(request).value().rows.front();
  };
  const Prediction slow_network = predict("1gbit", "0");
  EXPECT_EQ(slow_network.bottleneck, "links");
  EXPECT_EQ(slow_network.detail, Detail::kCall);
  const Prediction slow_kernels = predict("100gbit", "0.1");
  EXPECT_EQ(slow_kernels.bottleneck, "slowdown");
  EXPECT_NEAR(slow_kernels.losses.slowdown_ms, 0.1 * request.model.compute_ms,
              0.01 * request.model.compute_ms);
}

}  // namespace nccl_price_test
}  // namespace rueda::simulate
