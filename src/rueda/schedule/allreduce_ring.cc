// Ring allreduce: reduce-scatter around the ring, then allgather around the ring, in chunks.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
// Steps: 2 (n-1). Bytes sent per rank: 2 (n-1)/n S. The order of a sum depends on the element's block: not
// order preserving. 16-bit partial sums travel as float32 and are rounded once.
#include "rueda/schedule/ring.h"

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace allreduce_ring {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const Rank n = topology.size();
  const int64_t block = Blocks::even(spec.count, n, spec.dtype).largest();
  const double reduce = hop_us(topology, partial_bytes_of(spec, block));
  const double share = hop_us(topology, bytes_of(spec, block));
  return (n - 1) * (reduce + share) + reduce_us(topology, bytes_of(spec, block) * n);
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Blocks blocks = Blocks::even(spec.count, n, spec.dtype);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 4 * n);
  const RingCall call{.spec = spec, .size = n, .me = me, .blocks = blocks, .chunks = chunks};
  const Slice result = output(blocks.begin(me), blocks.count(me));
  ring_reduce_scatter(builder, call, result);
  ring_allgather(builder, call, result);
  return builder.take("ring");
}

}  // namespace
}  // namespace allreduce_ring

const Algorithm kAllreduceRing{.name = "ring",
                               .what = Collective::kAllreduce,
                               .preserves_order = PreservesOrder::kNever,
                               .cost_us = allreduce_ring::cost_us,
                               .build = allreduce_ring::build};

}  // namespace rueda::schedule
