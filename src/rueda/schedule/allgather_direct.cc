// Direct allgather: every rank sends its block to every other rank, directly into place. The order of peers
// is rotated to avoid incast. Steps: 1. Bytes sent per rank: (n-1) times its own block.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace allgather_direct {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const int64_t largest = Blocks::of_counts(spec.counts).largest();
  return phase_us(topology, all_to_all(topology, bytes_of(spec, largest)));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks{.chunk_elements = std::max<int64_t>(1, blocks.largest()),
                      .rounds = 1};  // nothing to overlap with
  const Slice mine = input(0, blocks.count(me));
  builder.copy(output(blocks.begin(me), blocks.count(me)), mine);
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  FlatOwners(builder, call).share(0, mine);
  return builder.take("direct");
}

}  // namespace
}  // namespace allgather_direct

const Algorithm kAllgatherDirect{.name = "direct",
                                 .what = Collective::kAllgather,
                                 .preserves_order = PreservesOrder::kAlways,
                                 .cost_us = allgather_direct::cost_us,
                                 .build = allgather_direct::build};

}  // namespace rueda::schedule
