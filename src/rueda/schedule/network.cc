#include "rueda/schedule/network.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace rueda::schedule {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

// Whether each host has a switch, and hosts that shared one below still do.
bool is_tier(const Tier& tier, const Tier* below, size_t hosts) {
  if (tier.switch_of.size() != hosts || !std::ranges::all_of(tier.uplink_gbps, is_positive)) return false;
  const auto exists = [&](int32_t at) { return at >= 0 && std::cmp_less(at, tier.uplink_gbps.size()); };
  if (!std::ranges::all_of(tier.switch_of, exists)) return false;
  if (below == nullptr) return true;
  std::vector<int32_t> above(below->uplink_gbps.size(), -1);  // [switch below]
  for (size_t host = 0; host < hosts; ++host) {
    int32_t& at = above[below->switch_of[host]];
    if (at >= 0 && at != tier.switch_of[host]) return false;
    at = tier.switch_of[host];
  }
  return true;
}

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
  const auto is_burst = [&](const Burst& burst) {
    const double rate = network.port_gbps[static_cast<size_t>(&burst - network.bursts.data())];
    return std::isfinite(burst.gbps) && burst.gbps > rate && is_positive(burst.bytes);
  };
  if (!network.bursts.empty() &&
      (network.bursts.size() != n || !std::ranges::all_of(network.bursts, is_burst)))
    return {Code::kInvalidArgument,
            "the bursts of a network are one for each port, of more than 0 bytes and faster than the port"};
  for (size_t i = 0; i < network.tiers.size(); ++i)
    if (!is_tier(network.tiers[i], i == 0 ? nullptr : &network.tiers[i - 1], n))
      return {
          Code::kInvalidArgument,
          "each host of a network has one switch in each tier, those that share one share those above, and "
          "the bandwidths of uplinks are above 0"};
  return Status::ok();
}

}  // namespace rueda::schedule
