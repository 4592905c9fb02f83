// The hosts of a job and the links between them, as `rueda simulate` takes them: from a file written by hand,
// or from the JSON of `rueda preflight`. docs/simulate.md describes the file. Values; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/network.h"
#include "rueda/schedule/topology.h"
#include "simulate/costs.h"

namespace rueda::simulate {

inline constexpr int kMostRanks = 4096;
inline constexpr int kLeastSwitch = 2;  // hosts
inline constexpr double kMostOversubscription = 1000;
inline constexpr double kTcpLatencyUs = 20, kRdmaLatencyUs = 3;

struct Host {
  std::string name;
  int ranks = 1;
  double speed = 1;      // of computing, relative to the workload's
  std::string machine;   // hosts of one machine share its cores; "" = the host is a machine
  int32_t cores = 0;     // of the machine; 0 = each rank has one of its own
  double rate_bits = 0;  // of its port, where that is not the link's
};

// A link between two hosts that is not like the others.
struct Link {
  std::string from, to;                   // both directions
  double rate_bits = 0, latency_us = -1;  // not above 0, below 0: as the others
};

// Switches over so many hosts each, in order. Their uplinks carry less than what is below them.
struct SwitchTier {
  int hosts = kLeastSwitch;
  double oversubscription = 1;  // the ports of the hosts, or the uplinks below, carry so many times as much
  double rate_bits = 0;         // of an uplink each way, instead of that
};

struct Cluster {
  std::vector<Host> hosts;
  std::string kind = "tcp";  // of the links: tcp, rdma or tbf
  double rate_bits = 25e9;   // of a link, each way
  double burst_bytes = 0;    // tbf: what a port lets through at peak_bits after a pause, each way
  double peak_bits = 0;
  double latency_us = kTcpLatencyUs;  // one way
  std::vector<Link> links;
  std::vector<SwitchTier> tiers;                                    // from the hosts up
  schedule::LinkCost within{.latency_us = 1, .bandwidth_gbps = 8};  // between ranks of a host
  std::string gpus;  // nvlink or pcie: calls run by NCCL, and `within` is a ring's rate; "" = in host memory
  bool is_payload = false;  // rates are of payload, as preflight measures them
  double reduce_gbps = 6;   // gigabytes per second that one rank reduces
  Costs costs;
  std::string source;  // from what it was read, for people

  [[nodiscard]] int ranks() const;
};

// What would be if …: replaces what the cluster says. New hosts are like the first one.
struct Changes {
  std::optional<int> ranks, per_host;
  std::optional<double> rate_bits, latency_us;
  std::optional<std::string> kind;
  std::optional<std::vector<SwitchTier>> tiers;
};

void use_kind(Cluster& cluster, const std::string& kind);            // tcp, rdma or tbf
Status check_burst(const Cluster& cluster);                          // whether its ports can have that burst
Status check_tiers(const std::vector<SwitchTier>& tiers);            // whether each tier fits those below it
Result<std::vector<SwitchTier>> parse_tiers(std::string_view text);  // "8:4,32:2": hosts, oversubscription
std::string tiers_text(const std::vector<SwitchTier>& tiers);        // "switches over 8 hosts, 4:1"

// path is for messages only.
Result<Cluster> parse_cluster(std::string_view json, std::string_view path);
Result<Cluster> read_cluster(const std::string& path);
Result<Cluster> change(Cluster cluster, const Changes& changes);

// What the schedules and the network under virtual time need of it.
struct Layout {
  schedule::Topology topology;  // of the world
  schedule::Network network;
  std::vector<int32_t> machine_of;  // [hosts]; empty: no machine limits its ranks
  std::vector<int32_t> cores;       // [machines]
  std::string gpus;                 // as Cluster
};
Layout lay_out(const Cluster& cluster);

}  // namespace rueda::simulate
