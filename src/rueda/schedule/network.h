// What lies between the hosts of a topology, pair by pair, where one description for the whole world is not
// enough: a slow pair, a host with a slower port. Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

struct Network {
  // [sending host * hosts + receiving host]; where both are the same, between two ranks of that host.
  std::vector<LinkCost> links;
  // [hosts] gigabytes per second that all ranks of a host together send to other hosts, and as many that they
  // receive.
  std::vector<double> port_gbps;

  [[nodiscard]] const LinkCost& link(int32_t from_host, int32_t to_host) const {
    return links[static_cast<size_t>(from_host) * port_gbps.size() + static_cast<size_t>(to_host)];
  }
  [[nodiscard]] LinkCost& link(int32_t from_host, int32_t to_host) {
    return links[static_cast<size_t>(from_host) * port_gbps.size() + static_cast<size_t>(to_host)];
  }
  // Every pair has the costs of the topology; a port carries as much as a link.
  static Network uniform(const Topology& topology);
};

// Does it describe so many hosts, with latencies of at least 0 and bandwidths above 0?
Status check_network(const Network& network, int32_t hosts);

}  // namespace rueda::schedule
