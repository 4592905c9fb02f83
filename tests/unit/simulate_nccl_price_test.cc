// What NCCL's own table says of its calls.
#include <gmock/gmock.h>
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

TEST(simulate_nccl_price, an_algorithm_is_forced_as_nccl_algo_does) {
  const NcclPrice ring = nccl_allreduce(1e9, kTwoHosts, "ring"),
                  tree = nccl_allreduce(1e9, kTwoHosts, "tree");
  EXPECT_EQ(ring.algorithm, "ring");
  EXPECT_NEAR(ring.transfer_us, 1.75 * 1e9 / 10e3, 1e-6);
  EXPECT_EQ(tree.algorithm, "tree");
  Request request;
  request.model = workload::find_model("resnet50").value();
  request.cluster = parse_cluster(R"({"hosts": 2, "gpus": "nvlink"})", "c.json").value();
  request.steps = 4;
  request.split = false;
  request.algorithm = "ring";
  EXPECT_EQ(simulate(request).value().rows.front().algorithms.count("tree"), 0U);
  request.algorithm = "halving_doubling";
  EXPECT_EQ(simulate(request).status().why,
            "--algorithm: halving_doubling is none of ring, tree, which NCCL has between \"gpus\"");
}

TEST(simulate_nccl_price, other_calls_have_the_bytes_of_their_rings_and_sends) {
  // 8 GPUs on 2 hosts: a ring has 6 steps inside hosts and one between them.
  const NcclPrice gather = nccl_call(Collective::kAllgather, 1e8, kTwoHosts);
  EXPECT_NEAR(gather.latency_us, 8.4 + 6 * 3.4 + 9.6, 1e-9);
  EXPECT_NEAR(gather.transfer_us, 7 * 1e8 / 10e3, 1e-6) << "each rank gets what seven others give";
  EXPECT_NEAR(nccl_call(Collective::kReducescatter, 8e8, kTwoHosts).transfer_us, gather.transfer_us, 1e-6);
  EXPECT_NEAR(nccl_call(Collective::kBroadcast, 1e8, kTwoHosts).transfer_us, 1e8 / 10e3, 1e-6);
  // Four GPUs of a host share its port, and half of what they give goes to the other one.
  EXPECT_NEAR(nccl_call(Collective::kAlltoall, 8e8, kTwoHosts).transfer_us, 4 * 4e8 / 10e3, 1e-6);
  EXPECT_EQ(nccl_call(Collective::kAllreduce, 1e9, kTwoHosts).algorithm, "tree");
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

TEST(simulate_nccl_price, what_calls_of_nccl_cannot_have_is_refused) {
  Request request;
  request.model = workload::find_model("resnet50").value();
  request.steps = 4;
  request.split = false;
  request.cluster = parse_cluster(R"({"hosts": 2, "gpus": "nvlink"})", "c.json").value();
  EXPECT_EQ(links_text(request),
            "tcp, 25 Gbit/s a link, 20 us one way; NCCL, nvlink 64 Gbit/s inside a host");
  request.detail = Detail::kMessage;
  EXPECT_THAT(simulate(request).status().why,
              testing::HasSubstr("--detail message follows the messages of the "));
  request.detail = Detail::kCall;
  request.chunk_bytes = 64 << 10;
  EXPECT_THAT(simulate(request).status().why,
              testing::HasSubstr("--chunk is of the library's own calls, and"));
  request.chunk_bytes = Request().chunk_bytes;
  EXPECT_TRUE(simulate(request).is_ok());
  for (const Strategy strategy : {Strategy::kParameterServer, Strategy::kTensorflowServers}) {
    request.servers.strategy = strategy;
    EXPECT_EQ(simulate(request).status().why,
              "--strategy " + strategy_text(request.servers) +
                  " exchanges variables in host memory, and \"gpus\" of the cluster has NCCL's calls; leave "
                  "out one of them");
  }
}

}  // namespace nccl_price_test
}  // namespace rueda::simulate
