// Ring reducescatter: the first half of the ring allreduce. Patarasuk and Yuan (2009).
// Steps: n-1. Bytes sent per rank: S less its own block. Not order preserving.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/ring.h"

namespace rueda::schedule {
namespace reducescatter_ring {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const Rank n = topology.size();
  const int64_t largest = Blocks::of_counts(spec.counts).largest();
  const double hop = hop_us(topology, partial_bytes_of(spec, largest));
  return (n - 1) * hop + reduce_us(topology, bytes_of(spec, largest) * n);
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 2 * n);
  const RingCall call{.spec = spec, .size = n, .me = me, .blocks = blocks, .chunks = chunks};
  ring_reduce_scatter(builder, call, output(0, blocks.count(me)));
  return builder.take("ring");
}

}  // namespace
}  // namespace reducescatter_ring

const Algorithm kReducescatterRing{.name = "ring",
                                   .what = Collective::kReducescatter,
                                   .preserves_order = PreservesOrder::kNever,
                                   .cost_us = reducescatter_ring::cost_us,
                                   .build = reducescatter_ring::build};

}  // namespace rueda::schedule
