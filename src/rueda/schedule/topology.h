// On which hosts the ranks of a group run, and what a byte costs between them. An algorithm may know nothing
// else of the world.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::schedule {

// alpha-beta model of one link class, measured at start-up (or assumed before).
struct LinkCost {
  double latency_us = 30;     // half a round trip of a small message
  double bandwidth_gbps = 1;  // gigabytes per second of one stream
};

struct Topology {
  std::vector<int32_t> host_of;  // [size] dense host index of each rank, in order of a host's first rank
  LinkCost local{.latency_us = 1, .bandwidth_gbps = 8};    // between ranks of one host
  LinkCost remote{.latency_us = 30, .bandwidth_gbps = 1};  // between hosts
  double reduce_gbps = 6;                                  // gigabytes per second one rank reduces
  int64_t chunk_bytes = 256 << 10;                         // unit of pipelining

  [[nodiscard]] Rank size() const { return static_cast<Rank>(host_of.size()); }
  [[nodiscard]] int32_t host_count() const;
  [[nodiscard]] bool is_single_host() const { return host_count() <= 1; }
  [[nodiscard]] std::vector<std::vector<Rank>> members() const;  // of each host, in ascending order
  [[nodiscard]] Topology as_single_host()
      const;  // as if all ranks were on one host, at the cost of their slowest link
  static Topology single_host(Rank size);
  static Topology regular(int32_t hosts, Rank ranks_per_host);
};

}  // namespace rueda::schedule
