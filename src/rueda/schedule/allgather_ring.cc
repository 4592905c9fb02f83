// Ring allgather: blocks travel once around the ring, in chunks. Between hosts, only one rank of each host
// sends. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
// (2005). Steps: n-1. Bytes sent per rank: all blocks but that of the next rank.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/ring.h"

namespace rueda::schedule {
namespace allgather_ring {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const int64_t largest = Blocks::of_counts(spec.counts).largest();
  return (topology.size() - 1) * hop_us(topology, bytes_of(spec, largest));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 2 * n);
  const Slice mine = input(0, blocks.count(me));
  builder.copy(output(blocks.begin(me), blocks.count(me)), mine);
  ring_allgather(builder, {.spec = spec, .size = n, .me = me, .blocks = blocks, .chunks = chunks}, mine);
  return builder.take("ring");
}

}  // namespace
}  // namespace allgather_ring

const Algorithm kAllgatherRing{.name = "ring",
                               .what = Collective::kAllgather,
                               .preserves_order = PreservesOrder::kAlways,
                               .cost_us = allgather_ring::cost_us,
                               .build = allgather_ring::build};

}  // namespace rueda::schedule
