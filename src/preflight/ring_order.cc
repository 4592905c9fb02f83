#include "preflight/ring_order.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "launch/host_order.h"

namespace rueda::preflight {
namespace {

// Two measurements of one pair differ by a few per cent, and changing a hostfile is work.
constexpr double kPays = 1.1;
constexpr int kLeastHosts = 4;  // up to three hosts have only one ring

}  // namespace

bool RingOrder::pays() const { return gbit_per_s >= kPays * given_gbit_per_s; }

std::optional<RingOrder> find_ring_order(int hosts, std::span<const PairMeasurement> pairs) {
  const auto all_pairs = static_cast<size_t>(hosts) * static_cast<size_t>(hosts - 1) / 2;
  if (hosts < kLeastHosts || pairs.size() != all_pairs) return std::nullopt;
  launch::HostPairs links(hosts, {});
  for (const PairMeasurement& pair : pairs)
    links.set(pair.a, pair.b,
              {.rate = pair.gbit_per_s, .latency_ns = std::llround(1e3 * pair.round_trip_us / 2)});
  std::vector<int> given(static_cast<size_t>(hosts));
  std::iota(given.begin(), given.end(), 0);
  const launch::RingLinks now = launch::ring_links(links, given);
  RingOrder ring{.order = launch::best_host_order(links)};
  const launch::RingLinks best = launch::ring_links(links, ring.order);
  ring.gbit_per_s = best.slowest_rate;
  ring.given_gbit_per_s = now.slowest_rate;
  ring.latency_us = static_cast<double>(best.latency_ns) / 1e3;
  ring.given_latency_us = static_cast<double>(now.latency_ns) / 1e3;
  ring.slowest_a = now.from;
  ring.slowest_b = now.to;
  return ring;
}

std::string host_list(std::span<const std::string> hosts, std::span<const launch::HostSlots> slots,
                      std::span<const int> order) {
  std::string text;
  for (const int host : order) {
    const auto at = static_cast<size_t>(host);
    text += text.empty() ? "" : ",";
    if (slots.size() != hosts.size()) {
      text += hosts[at];
      continue;
    }
    const bool has_colons = slots[at].name.find(':') != std::string::npos;  // IPv6
    text += fmt::format(fmt::runtime(has_colons ? "[{}]:{}" : "{}:{}"), slots[at].name, slots[at].slots);
  }
  return text;
}

Findings check_ring_order(std::span<const std::string> hosts, std::span<const launch::HostSlots> slots,
                          const std::optional<RingOrder>& ring) {
  if (!ring || !ring->pays()) return {};
  const auto name = [&](int host) { return hosts[static_cast<size_t>(host)]; };
  const std::string list = host_list(hosts, slots, ring->order);
  return {{"host-order",
           {},
           fmt::format("a ring through the hosts in the order they were given has {} - {} as its slowest "
                       "link, {}; if your job uses rings (RUEDA_ALGORITHM=ring, NCCL), {} gives {}",
                       name(ring->slowest_a), name(ring->slowest_b), gbit_text(ring->given_gbit_per_s),
                       slots.size() == hosts.size() ? "-H " + list : "the order " + list,
                       gbit_text(ring->gbit_per_s)),
           false}};
}

}  // namespace rueda::preflight
