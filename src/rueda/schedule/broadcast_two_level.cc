// Two-level broadcast: a binomial tree over hosts, then one inside each host.
// Steps: ceil(log2 H) + ceil(log2 L) for H hosts of L ranks. Bytes between hosts: S once per host.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/tree.h"

namespace rueda::schedule {
namespace broadcast_two_level {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (topology.is_single_host()) return std::nullopt;
  const double bytes = bytes_of(spec, spec.count);
  return ceil_log2(topology.host_count()) *
             phase_us(topology, {.remote_messages = 1, .remote_bytes = bytes}) +
         ceil_log2(largest_host(topology)) * phase_us(topology, {.local_messages = 1, .local_bytes = bytes});
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  const auto hosts = hosts_from(topology, spec.root);
  std::vector<Rank> leaders;
  for (const auto& host : hosts) leaders.push_back(host.front());
  TreePlace place;
  const int32_t my_host = mod(topology.host_of[me] - topology.host_of[spec.root], topology.host_count());
  if (leaders[my_host] == me) join_binomial(leaders, my_host, place);
  const auto& mates = hosts[my_host];
  join_binomial(mates, static_cast<int32_t>(std::find(mates.begin(), mates.end(), me) - mates.begin()),
                place);
  const int64_t steps = 1 + ceil_log2(topology.host_count()) + ceil_log2(largest_host(topology));
  return broadcast_along(spec, Chunks::plan(spec, topology, spec.count, steps), place, "two_level");
}

}  // namespace
}  // namespace broadcast_two_level

const Algorithm kBroadcastTwoLevel{.name = "two_level",
                                   .what = Collective::kBroadcast,
                                   .preserves_order = PreservesOrder::kAlways,
                                   .cost_us = broadcast_two_level::cost_us,
                                   .build = broadcast_two_level::build};

}  // namespace rueda::schedule
