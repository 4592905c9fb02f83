// Chain broadcast: chunks run from the root through all ranks, host by host, so that every link between hosts
// carries the buffer once. For large buffers. Textbook (pipelined chain).
// Steps: n-1 for the first chunk, one for each further chunk. Bytes sent per rank: S.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/tree.h"

namespace rueda::schedule {
namespace broadcast_chain {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const Rank n = topology.size();
  if (n == 1) return 0;
  const Chunks chunks = Chunks::plan(spec, topology, spec.count, 2);
  const double chunk = bytes_of(spec, std::min(chunks.chunk_elements, spec.count));
  const double hop = phase_us(topology, neighbour(topology, 1, chunk));
  const double in_host = phase_us(topology, {.local_messages = 1, .local_bytes = chunk});
  const double crossings = topology.host_count() - 1;
  return crossings * hop + (n - 1 - crossings) * in_host + static_cast<double>(chunks.rounds - 1) * hop;
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  std::vector<Rank> line;
  for (const auto& host : hosts_from(topology, spec.root)) line.insert(line.end(), host.begin(), host.end());
  const auto my_place = std::find(line.begin(), line.end(), me);
  TreePlace place;
  if (my_place != line.begin()) place.parent = *(my_place - 1);
  if (my_place + 1 != line.end()) place.children.push_back(*(my_place + 1));
  return broadcast_along(spec, Chunks::plan(spec, topology, spec.count, 2), place, "chain");
}

}  // namespace
}  // namespace broadcast_chain

const Algorithm kBroadcastChain{.name = "chain",
                                .what = Collective::kBroadcast,
                                .preserves_order = PreservesOrder::kAlways,
                                .cost_us = broadcast_chain::cost_us,
                                .build = broadcast_chain::build};

}  // namespace rueda::schedule
