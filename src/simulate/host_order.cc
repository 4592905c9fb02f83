#include "simulate/host_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/host_order.h"

namespace rueda::simulate {
namespace {

std::vector<int> best_order_of(const Cluster& cluster) {
  const schedule::Network network = lay_out(cluster).network;
  const auto hosts = static_cast<int>(cluster.hosts.size());
  launch::HostPairs pairs(hosts, {});
  for (int a = 0; a < hosts; ++a)
    for (int b = 0; b < a; ++b) {
      const schedule::LinkCost& link = network.link(a, b);
      pairs.set(a, b, {.rate = link.bandwidth_gbps, .latency_ns = std::llround(1e3 * link.latency_us)});
    }
  return launch::best_host_order(pairs);
}

Result<std::vector<int>> named_order(const Cluster& cluster, std::string_view text) {
  std::vector<int> order;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name(text.substr(begin, end - begin));
    begin = end + 1;
    const auto at = std::ranges::find(cluster.hosts, name, &Host::name);
    if (at == cluster.hosts.end())
      return Status(
          Code::kInvalidArgument,
          fmt::format("--host-order: \"{}\" is no host of {}; give best, given, or the names of all "
                      "{} hosts with commas",
                      name, cluster.source, cluster.hosts.size()));
    order.push_back(static_cast<int>(at - cluster.hosts.begin()));
    if (std::ranges::count(order, order.back()) > 1)
      return Status(Code::kInvalidArgument,
                    fmt::format("--host-order names {} twice; name every host once", name));
  }
  if (order.size() == cluster.hosts.size()) return order;
  return Status(Code::kInvalidArgument, fmt::format("--host-order names {} of the {} hosts of {}; name all",
                                                    order.size(), cluster.hosts.size(), cluster.source));
}

}  // namespace

Result<Cluster> order_hosts(Cluster cluster, std::string_view order) {
  if (order.empty() || order == "given") return cluster;
  Result<std::vector<int>> found =
      order == "best" ? Result<std::vector<int>>(best_order_of(cluster)) : named_order(cluster, order);
  if (!found.is_ok()) return found.status();
  std::vector<Host> hosts;
  for (const int at : found.value()) hosts.push_back(cluster.hosts[static_cast<size_t>(at)]);
  cluster.hosts = std::move(hosts);
  return cluster;
}

}  // namespace rueda::simulate
