// The links between the hosts of a topology, pair by pair, for networks that one description does not fit:
// with a slow pair, or a host with a slower port. Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// Switches above hosts. What hosts of one switch exchange with others crosses its uplink.
struct Tier {
  std::vector<int32_t> switch_of;   // [hosts]
  std::vector<double> uplink_gbps;  // [switches] gigabytes per second each way
};

// What a port lets through beyond its rate when it has been idle, each way (token_bucket.h).
struct Burst {
  double bytes = 0;
  double gbps = 0;  // gigabytes per second at which it goes; not below the rate of the port
};

struct Network {
  // [sending host * hosts + receiving host]. If both are the same: the link between two ranks of that host.
  std::vector<LinkCost> links;
  // [hosts] gigabytes per second that all ranks of a host together can send to other hosts, and
  // receive from them.
  std::vector<double> port_gbps;
  std::vector<Burst> bursts = {};  // [hosts], or empty: no port lets through more. Links carry them
  // Whether a port becomes slower when several hosts send to it, because bursts overflow the queue of a
  // switch.
  bool slows_many_senders = true;
  // From the hosts up: hosts of one switch have one switch in each tier above, too. Where there are none,
  // only links and ports limit anything.
  std::vector<Tier> tiers;

  [[nodiscard]] const LinkCost& link(int32_t from_host, int32_t to_host) const {
    return links[static_cast<size_t>(from_host) * port_gbps.size() + static_cast<size_t>(to_host)];
  }
  [[nodiscard]] LinkCost& link(int32_t from_host, int32_t to_host) {
    return links[static_cast<size_t>(from_host) * port_gbps.size() + static_cast<size_t>(to_host)];
  }
  [[nodiscard]] double fastest_gbps(int32_t host) const {  // of its port
    return bursts.empty() ? port_gbps[host] : bursts[host].gbps;
  }
  // Every pair has the costs of the topology. A port carries as much as a link.
  static Network uniform(const Topology& topology);
};

// Whether it describes this many hosts, with latencies of at least 0 and bandwidths above 0, and tiers of
// switches as above.
Status check_network(const Network& network, int32_t hosts);

}  // namespace rueda::schedule
