// Clusters as files, and what would be if they were others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulate/cluster.h"
#include "simulate/host_order.h"

namespace rueda::simulate {
namespace cluster_test {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Cluster parsed(std::string_view json) {
  Result<Cluster> cluster = parse_cluster(json, "c.json");
  EXPECT_TRUE(cluster.is_ok()) << cluster.status().why;
  return cluster.is_ok() ? std::move(cluster).value() : Cluster();
}

TEST(simulate_cluster, hosts_that_are_alike_have_payload_and_ports_of_their_links) {
  const Cluster cluster = parsed(
      R"({"hosts": 3, "ranks_per_host": 2, "costs": {"payload": 0.8},
          "link": {"rate": "10gbit", "latency_us": 15}})");
  EXPECT_EQ(cluster.ranks(), 6);
  const Layout layout = lay_out(cluster);
  EXPECT_EQ(layout.topology.host_of, (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_DOUBLE_EQ(layout.network.link(0, 2).bandwidth_gbps, 1.0);
  EXPECT_DOUBLE_EQ(layout.network.link(0, 2).latency_us, 15);
  EXPECT_DOUBLE_EQ(layout.network.port_gbps[1], 1.0);
  EXPECT_TRUE(layout.machine_of.empty()) << "nobody has said how many cores there are";
}

TEST(simulate_cluster, a_slow_port_a_slow_pair_and_shared_cores_are_where_the_file_says) {
  const Cluster cluster = parsed(R"({"hosts": [{"name": "a", "machine": "m", "cores": 2},
      {"name": "b", "machine": "m", "cores": 2, "rate": "1gbit", "speed": 0.5}, {"name": "c", "cores": 8}],
      "link": {"rate": "8gbit"}, "links": [{"hosts": ["a", "c"], "rate": "2gbit", "latency_us": 500}],
      "costs": {"payload": 1}})");
  const Layout layout = lay_out(cluster);
  EXPECT_EQ(layout.machine_of, (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(layout.cores, (std::vector<int32_t>{2, 8}));
  EXPECT_DOUBLE_EQ(layout.network.port_gbps[1], 0.125);
  EXPECT_DOUBLE_EQ(layout.network.link(1, 0).bandwidth_gbps, 0.125) << "no faster than the port";
  EXPECT_DOUBLE_EQ(layout.network.link(2, 0).bandwidth_gbps, 0.25);
  EXPECT_DOUBLE_EQ(layout.network.link(0, 2).latency_us, 500);
  EXPECT_DOUBLE_EQ(layout.network.link(2, 1).latency_us, kTcpLatencyUs);
  EXPECT_DOUBLE_EQ(cluster.hosts[1].speed, 0.5);
}

TEST(simulate_cluster, what_preflight_has_measured_is_payload_pair_by_pair) {
  const Cluster cluster = parsed(R"({"asked": ["a", "b"], "ranks": 5, "findings": [],
      "hosts": [{"host": "a", "cores": 4, "within_gbit_per_s": 40},
                {"host": "b", "cores": 4, "within_gbit_per_s": null}],
      "links": [{"hosts": ["a", "b"], "gbit_per_s": 8, "round_trip_us": 60}]})");
  EXPECT_THAT(cluster.source, HasSubstr("preflight"));
  EXPECT_EQ(cluster.hosts[0].ranks, 3);
  EXPECT_EQ(cluster.hosts[1].ranks, 2);
  const Layout layout = lay_out(cluster);
  EXPECT_DOUBLE_EQ(layout.network.link(0, 1).bandwidth_gbps, 1);
  EXPECT_DOUBLE_EQ(layout.network.link(0, 1).latency_us, 30);
  EXPECT_DOUBLE_EQ(layout.topology.local.bandwidth_gbps, 5);
}

TEST(simulate_cluster, a_file_that_contradicts_itself_is_refused_in_one_sentence) {
  const std::vector<std::pair<const char*, const char*>> files = {
      {"[]", "it is not a JSON object"},
      {"", "c.json is not a cluster: it is empty;"},
      {" \n", "it is empty"},
      {"{\n \"hosts\": 2,\n \"lin", "it is no JSON at line 3, column 6, where it ends too early"},
      {"{\"hosts\": two}", "it is no JSON at line 1, column 12;"},
      {R"({"hosts": 1e999})", "it has a number that is too large"},
      {R"({"hosts": 2, "hosts": 3})", "an object has the key \"hosts\" twice"},
      {R"({"hosts": [{"name": "a", "rate": "1gbit", "rate": "2gbit"}]})", "the key \"rate\" twice"},
      {"{}", "it has no \"hosts\""},
      {R"({"hosts": 0})", "\"hosts\" is not a number from 1 to 4096"},
      {R"({"hosts": 2.5})", "\"hosts\" is not a whole number"},
      {R"({"hosts": "two"})", "\"hosts\" is neither a number nor a list"},
      {R"({"hosts": []})", "\"hosts\" names no host"},
      {R"({"hosts": [{"name": "a"}], "ranks_per_host": 2})",
       "\"ranks_per_host\" is for a number of hosts that are alike; write \"ranks\" in each entry"},
      {R"({"hosts": [{"name": "a\u001b[2J"}]})", "\"name\" has a control character"},
      {R"({"hosts": [{"name": "a\u009b2J"}]})", "\"name\" has a control character"},
      {R"({"asked": [], "findings": [], "links": [], "hosts": [{"host": "a\nb"}]})",
       "\"host\" has a control character"},
      {R"({"hosts": [{"name": "a"}, {"name": "b", "rate": "0gbit"}]})", "\"rate\" of host b: 0gbit"},
      {R"({"hosts": 2, "links": [{"hosts": ["host0", "host1"], "rate": "0gbit"}]})",
       "\"rate\" of the link between host0 and host1: 0gbit"},
      {R"({"hosts": 2, "links": [{"hosts": ["host0", "x\ny"]}]})",
       "\"hosts\" of a link has a control character"},
      {R"({"hosts": 2, "a\nb": 1})", "it has an unknown key \"a\\nb\""},
      {R"({"asked": [], "findings": [], "hosts": [{"host": "a"}, {"host": "b"}],
          "links": [{"hosts": ["a", "b"], "gbit_per_s": 0}]})",
       "\"gbit_per_s\" of the link between a and b is not a number from"},
      {R"({"hosts": 2, "lnk": {}})", "it has an unknown key \"lnk\""},
      {R"({"hosts": 2, "link": {"rate": "0gbit"}})", "\"rate\": "},
      {R"({"hosts": 2, "link": {"rate": 25}})", "\"rate\" is not a text"},
      {R"({"hosts": 2, "link": {"kind": "carrier pigeon"}})", "carrier pigeon is none of tcp, rdma and tbf"},
      {R"({"hosts": 2, "link": {"kind": "nvlink"}})", "nvlink is inside a host; write it in \"within\""},
      {R"({"hosts": 2, "link": {"kind": "tbf", "burst": "1MiB"}})", "needs \"rate\" and \"burst\""},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit"}})", "needs \"rate\" and \"burst\""},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": "0"}})", "\"burst\": 0 "},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": "1KiB"}})",
       "\"burst\" is less than a frame of 1514 bytes"},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": "1MiB", "peak": "0gbit"}})",
       "\"peak\": "},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": "1MiB", "peak": "500mbit"}})",
       "a burst goes at 500 Mbit/s, which is not more than the rate of 1 Gbit/s"},
      {R"({"hosts": 2, "link": {"rate": 0}})", "\"rate\" is not a text such as \"1gbit\";"},
      {R"({"hosts": [{"name": "a", "rate": ""}]})", "\"rate\" of host a is not a text such as \"1gbit\";"},
      {R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": 1}})",
       "\"burst\" is not a text such as \"64KiB\";"},
      {R"({"hosts": 2, "link": {"rate": "1gbit", "burst": "1MiB"}})", "\"burst\" is for links of kind tbf"},
      {R"({"hosts": 2, "gpus": "pcie", "link": {"kind": "tbf", "rate": "1gbit", "burst": "1MiB"}})",
       "and \"gpus\" has NCCL's"},
      {R"({"hosts": 2, "within": {"kind": "tcp"}})", "tcp of \"within\" is none of shm, nvlink and pcie"},
      {R"({"hosts": 2, "gpus": "pcie", "within": {"kind": "nvlink"}})", "\"gpus\" says pcie, and "},
      {R"({"hosts": 2, "link": {"latency_us": -1}})", "\"latency_us\" is not a number from 0 to "},
      {R"({"hosts": 1000000})", "\"hosts\" is not a number from 1 to 4096"},
      {R"({"hosts": 1000, "ranks_per_host": 1000})", "it has 1000000 ranks, more than the 4096"},
      {R"({"hosts": [{"name": "a"}, {"name": "a"}]})", "two hosts are called a"},
      {R"({"hosts": [{"name": "a", "machine": "m", "cores": 2}, {"name": "b", "machine": "m", "cores": 4}]})",
       "machine m has 2 and 4 cores"},
      {R"({"hosts": [{"name": "a", "machine": "m"}]})",
       "host a is on machine m, whose \"cores\" it does not say"},
      {R"({"hosts": 2, "links": [{"hosts": ["host0", "x"]}]})", "a link names x, which is no host"},
      {R"({"hosts": 2, "links": [{"hosts": ["host0", "host0"]}]})", "not the names of two hosts"},
      {R"({"hosts": 2, "links": [{"hosts": ["host0", "host1"]}, {"hosts": ["host1", "host0"]}]})",
       "the link between host1 and host0 is described twice"},
      {R"({"hosts": 4, "tiers": {}})", "\"tiers\" is not a list"},
      {R"({"hosts": 4, "tiers": [{"hosts": 2}]})",
       "an entry of \"tiers\" needs either \"oversubscription\" or \"rate\""},
      {R"({"hosts": 4, "tiers": [{"hosts": 2, "oversubscription": 2, "rate": "1gbit"}]})", "needs either"},
      {R"({"hosts": 4, "tiers": [{"hosts": 1, "oversubscription": 2}]})",
       "\"hosts\" is not a number from 2 to 4096"},
      {R"({"hosts": 4, "tiers": [{"hosts": 2, "oversubscription": 0.5}]})",
       "\"oversubscription\" is not a number from 1 to 1000"},
      {R"({"hosts": 4, "tiers": [{"hosts": 4, "rate": "1gbit"}, {"hosts": 6, "rate": "1gbit"}]})",
       "a tier of switches over 6 hosts is above one over 4; each must have some times as many"},
      {R"({"hosts": 2, "costs": {"payload": 0}})", "\"payload\" is not a number from 0.01 to 1"},
      {R"({"hosts": 2, "costs": {"slow_share": 20}})", "\"slow_share\" is not a number from 0 to 1"},
      {R"({"hosts": 2, "costs": {"pay": 1}})", "\"costs\" has an unknown key \"pay\""}};
  for (const auto& [json, why] : files) {
    const Result<Cluster> cluster = parse_cluster(json, "c.json");
    ASSERT_FALSE(cluster.is_ok()) << json;
    EXPECT_THAT(cluster.status().why, StartsWith("c.json is not a cluster: ")) << json;
    EXPECT_THAT(cluster.status().why, HasSubstr(why)) << json;
    EXPECT_THAT(cluster.status().why, EndsWith("; docs/simulate.md describes the file")) << json;
    EXPECT_THAT(cluster.status().why, Not(HasSubstr("\n"))) << json;
  }
  EXPECT_THAT(read_cluster("/nowhere.json").status().why, StartsWith("cannot read /nowhere.json"));
}

TEST(simulate_cluster, objects_that_are_beside_one_another_may_have_the_same_keys) {
  EXPECT_EQ(parsed(R"({"hosts": [{"name": "a"}, {"name": "b"}], "link": {"rate": "1gbit"},
                       "links": [{"hosts": ["a", "b"], "rate": "2gbit"}]})")
                .links.size(),
            1U);
}

TEST(simulate_cluster, ports_of_a_token_bucket_have_a_rate_a_burst_and_a_peak) {
  const Cluster cluster = parsed(R"({"hosts": 3, "costs": {"payload": 1},
      "link": {"kind": "tbf", "rate": "1gbit", "burst": "1MiB", "peak": "8gbit"},
      "links": [{"hosts": ["host0", "host2"], "rate": "2gbit"}]})");
  const schedule::Network network = lay_out(cluster).network;
  EXPECT_TRUE(check_network(network, 3).is_ok());
  EXPECT_EQ(network.port_gbps, (std::vector<double>{0.125, 0.125, 0.125}));
  ASSERT_EQ(network.bursts.size(), 3U);
  EXPECT_EQ(network.bursts[1].bytes, 1 << 20);
  EXPECT_EQ(network.bursts[1].gbps, 1);
  EXPECT_EQ(network.link(0, 1).bandwidth_gbps, 1) << "the ports decide how long it is as fast";
  EXPECT_EQ(network.link(2, 0).bandwidth_gbps, 0.25) << "a slow pair has no burst beyond its rate";
  EXPECT_EQ(parsed(R"({"hosts": 2, "link": {"kind": "tbf", "rate": "1gbit", "burst": "64KiB"},
                       "within": {"rate": "40gbit"}})")
                .peak_bits,
            40e9)
      << "without a peak, as inside a host";
  Changes faster;
  faster.rate_bits = 1e10;
  EXPECT_THAT(change(cluster, faster).status().why, HasSubstr("give a faster \"peak\", or kind tcp"));
  Changes rdma;
  rdma.kind = "rdma";
  EXPECT_THAT(change(cluster, rdma).status().why,
              StartsWith("--rdma contradicts c.json, whose links are token buckets (kind tbf), which rdma"));
}

TEST(simulate_cluster, the_kind_of_what_is_inside_a_host_says_whether_calls_are_of_nccl) {
  EXPECT_EQ(parsed(R"({"hosts": 2, "within": {"kind": "nvlink", "rate": "800gbit"}})").gpus, "nvlink");
  EXPECT_EQ(parsed(R"({"hosts": 2, "within": {"kind": "pcie"}})").gpus, "pcie");
  EXPECT_EQ(parsed(R"({"hosts": 2, "within": {"kind": "shm"}})").gpus, "");
}

TEST(simulate_cluster, uplinks_carry_a_share_of_what_is_below_them) {
  const Cluster cluster = parsed(R"({"hosts": 6, "link": {"rate": "8gbit"}, "costs": {"payload": 1},
      "tiers": [{"hosts": 2, "oversubscription": 4}, {"hosts": 4, "oversubscription": 2},
                {"hosts": 8, "rate": "4gbit"}]})");
  const Layout layout = lay_out(cluster);
  const std::vector<schedule::Tier>& tiers = layout.network.tiers;
  ASSERT_EQ(tiers.size(), 3U);
  EXPECT_EQ(tiers[0].switch_of, (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(tiers[0].uplink_gbps, (std::vector<double>{0.5, 0.5, 0.5})) << "a quarter of two ports";
  EXPECT_EQ(tiers[1].switch_of, (std::vector<int32_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(tiers[1].uplink_gbps, (std::vector<double>{0.5, 0.5}))
      << "half of two uplinks, one of which is not there yet";
  EXPECT_EQ(tiers[2].uplink_gbps, (std::vector<double>{0.5})) << "as it says";
  EXPECT_TRUE(check_network(layout.network, 6).is_ok());
  Changes changes;
  changes.tiers = parse_tiers("3:2").value();
  EXPECT_EQ(lay_out(change(cluster, changes).value()).network.tiers.at(0).uplink_gbps,
            (std::vector<double>{1.5, 1.5}));
  EXPECT_EQ(
      tiers_text(cluster.tiers),
      "switches over 2 hosts, 4:1; switches over 4 hosts, 2:1; switches over 8 hosts, uplinks of 4 Gbit/s");
}

TEST(simulate_cluster, tiers_as_an_option_are_refused_in_one_sentence) {
  for (const char* text : {"8", "8:", "1:4", "8:0.5", "8:many", "8:4,12:2", "8:4,8:2", ":4"})
    EXPECT_FALSE(parse_tiers(text).is_ok()) << text;
  EXPECT_THAT(
      parse_tiers("8:x").status().why,
      EndsWith("does not end with a number from 1 to 1000; write HOSTS:OVERSUBSCRIPTION for each tier, "
               "8:4,32:2"));
}

TEST(simulate_cluster, changes_replace_what_the_file_says) {
  const Cluster cluster =
      parsed(R"({"hosts": [{"name": "a", "ranks": 4, "rate": "1gbit"}, {"name": "b", "ranks": 4}],
      "links": [{"hosts": ["a", "b"], "rate": "2gbit"}]})");
  Changes changes;
  changes.ranks = 12;
  const Cluster more = change(cluster, changes).value();
  EXPECT_EQ(more.hosts.size(), 3U);
  EXPECT_EQ(more.hosts[2].rate_bits, 1e9) << "like the first";
  EXPECT_EQ(more.links.size(), 1U);
  changes.ranks = 4;
  EXPECT_TRUE(change(cluster, changes).value().links.empty()) << "the link of a host that is gone";
  changes.ranks = 2;
  EXPECT_EQ(change(cluster, changes).value().ranks(), 2);
  changes.ranks = 6;
  EXPECT_THAT(change(cluster, changes).status().why, HasSubstr("6 ranks do not fill hosts of 4"));
  const Cluster uneven = parsed(R"({"hosts": [{"name": "a", "ranks": 4}, {"name": "b", "ranks": 2}]})");
  EXPECT_EQ(change(uneven, changes).value().hosts.size(), 2U) << "as it is";
  changes.ranks = 8;
  EXPECT_THAT(change(uneven, changes).status().why,
              HasSubstr("different numbers of ranks, so it is not clear"));
  changes = {};
  changes.rate_bits = 1e10;
  changes.kind = "rdma";
  const Cluster faster = change(cluster, changes).value();
  EXPECT_TRUE(faster.links.empty());
  EXPECT_EQ(faster.hosts[0].rate_bits, 0);
  EXPECT_EQ(faster.latency_us, kRdmaLatencyUs);
  EXPECT_EQ(faster.costs.byte_ns, 0);
}

std::string names_of(const Cluster& cluster) {
  std::string names;
  for (const Host& host : cluster.hosts) names += host.name;
  return names;
}

TEST(simulate_cluster, hosts_are_given_to_the_job_in_the_order_that_is_asked_for) {
  const Cluster cluster = parsed(R"({"hosts": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}],
      "links": [{"hosts": ["a", "b"], "rate": "1gbit"}]})");
  EXPECT_EQ(names_of(order_hosts(cluster, "given").value()), "abcd");
  EXPECT_EQ(names_of(order_hosts(cluster, "best").value()), "acbd");
  EXPECT_EQ(names_of(order_hosts(cluster, "d,a,c,b").value()), "dacb");
  const Layout layout = lay_out(order_hosts(cluster, "best").value());
  EXPECT_DOUBLE_EQ(layout.network.link(0, 2).bandwidth_gbps, cluster.costs.payload / 8)
      << "the slow link goes where its hosts go";
  EXPECT_THAT(order_hosts(cluster, "a,b,x,d").status().why, HasSubstr("\"x\" is no host of c.json"));
  EXPECT_THAT(order_hosts(cluster, "a,b,a,d").status().why, HasSubstr("names a twice"));
  EXPECT_THAT(order_hosts(cluster, "a,b").status().why, HasSubstr("names 2 of the 4 hosts"));
}

}  // namespace cluster_test
}  // namespace rueda::simulate
