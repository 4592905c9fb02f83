// Whether another order of the hosts would make rings faster, from what pairs of hosts have reached. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "preflight/findings.h"
#include "preflight/links.h"

namespace rueda::preflight {

struct RingOrder {
  std::vector<int> order;                       // of hosts, the best one found
  double gbit_per_s = 0, given_gbit_per_s = 0;  // of the slowest link around the ring, in both orders
  double latency_us = 0, given_latency_us = 0;  // half the round trips, added up around the ring
  int slowest_a = 0, slowest_b = 0;             // the ends of the slowest link in the given order
  [[nodiscard]] bool pays() const;
};

// Nothing where an order cannot matter (fewer than four hosts) or where a pair was not measured.
std::optional<RingOrder> find_ring_order(int hosts, std::span<const PairMeasurement> pairs);

// Advice where it pays. slots: of each host, as the launcher knows them; empty = nobody has said.
Findings check_ring_order(std::span<const std::string> hosts, std::span<const launch::HostSlots> slots,
                          const std::optional<RingOrder>& ring);

// "a:8,c:8,b:8", or the names alone where the slots are unknown.
std::string host_list(std::span<const std::string> hosts, std::span<const launch::HostSlots> slots,
                      std::span<const int> order);

}  // namespace rueda::preflight
