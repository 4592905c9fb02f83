#include "rueda/schedule/network.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace rueda::schedule {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Network Network::uniform(const Topology& topology) {
  const auto hosts = static_cast<size_t>(topology.host_count());
  Network network;
  network.links.assign(hosts * hosts, topology.remote);
  for (size_t host = 0; host < hosts; ++host) network.links[host * hosts + host] = topology.local;
  network.port_gbps.assign(hosts, topology.remote.bandwidth_gbps);
  return network;
}

Status check_network(const Network& network, int32_t hosts) {
  const auto n = static_cast<size_t>(hosts);
  if (network.port_gbps.size() != n || network.links.size() != n * n)
    return {Code::kInvalidArgument, "a network of " + std::to_string(n) + " hosts has " + std::to_string(n) +
                                        " ports and " + std::to_string(n * n) + " links; this one has " +
                                        std::to_string(network.port_gbps.size()) + " and " +
                                        std::to_string(network.links.size())};
  const bool has_ports = std::ranges::all_of(network.port_gbps, is_positive);
  const bool has_links = std::ranges::all_of(network.links, [](const LinkCost& link) {
    return std::isfinite(link.latency_us) && link.latency_us >= 0 && is_positive(link.bandwidth_gbps);
  });
  if (!has_ports || !has_links)
    return {Code::kInvalidArgument,
            "the latencies of a network must be at least 0, and its bandwidths above 0"};
  return Status::ok();
}

}  // namespace rueda::schedule
