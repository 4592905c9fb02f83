// Direct reducescatter: every rank receives its block from all others and reduces in the canonical order of
// the topology. Order preserving. Steps: 1. Bytes sent per rank: S less its own block.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace reducescatter_direct {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const double largest = bytes_of(spec, Blocks::of_counts(spec.counts).largest());
  return phase_us(topology, all_to_all(topology, largest)) + reduce_us(topology, largest * topology.size());
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 2 * topology.size());
  const Slice result = output(0, blocks.count(me));
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  FlatOwners owners(builder, call);
  for (int64_t round = 0; round < chunks.rounds; ++round) {
    owners.contribute(round);
    owners.reduce(round, result);
  }
  return builder.take("direct");
}

}  // namespace
}  // namespace reducescatter_direct

const Algorithm kReducescatterDirect{.name = "direct",
                                     .what = Collective::kReducescatter,
                                     .preserves_order = PreservesOrder::kAlways,
                                     .cost_us = reducescatter_direct::cost_us,
                                     .build = reducescatter_direct::build};

}  // namespace rueda::schedule
