#include "rueda/schedule/topology.h"

#include <algorithm>

#include "rueda/base/check.h"

namespace rueda::schedule {

int32_t Topology::host_count() const {
  return host_of.empty() ? 0 : *std::max_element(host_of.begin(), host_of.end()) + 1;
}

std::vector<std::vector<Rank>> Topology::members() const {
  std::vector<std::vector<Rank>> members(host_count());
  for (Rank rank = 0; rank < size(); ++rank) members[host_of[rank]].push_back(rank);
  return members;
}

Topology Topology::as_single_host() const {
  Topology flat = *this;
  if (!is_single_host()) flat.local = remote;
  flat.host_of.assign(host_of.size(), 0);
  return flat;
}

Topology Topology::single_host(Rank size) { return regular(1, size); }

Topology Topology::regular(int32_t hosts, Rank ranks_per_host) {
  RUEDA_CHECK(hosts >= 1 && ranks_per_host >= 1, "a topology has at least one host and one rank");
  Topology topology;
  for (int32_t host = 0; host < hosts; ++host)
    topology.host_of.insert(topology.host_of.end(), ranks_per_host, host);
  return topology;
}

}  // namespace rueda::schedule
