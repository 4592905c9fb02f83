// Direct allreduce: the owner of a block receives it from all ranks, reduces in the canonical order of the
// topology, and sends the result to all ranks. Order preserving: the bits of an element depend on no offset,
// chunk or size. Steps: 2. Bytes sent per rank: 2 (n-1)/n S, as few as a ring's. Source of the idea: the
// direct-exchange reduce-scatter and allgather of Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH" (2005), with a fixed order of reduction.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace allreduce_direct {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const int64_t block = Blocks::even(spec.count, topology.size(), spec.dtype).largest();
  const double exchange = phase_us(topology, all_to_all(topology, bytes_of(spec, block)));
  return 2 * exchange + reduce_us(topology, bytes_of(spec, block) * topology.size());
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  Blocks blocks = Blocks::even(spec.count, n, spec.dtype);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 4 * n);
  const Slice result = output(blocks.begin(me), blocks.count(me));
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  FlatOwners owners(builder, call);
  constexpr int64_t kLag = 2;  // contributions run ahead, so that sharing a chunk never holds them up
  for (int64_t round = 0; round < chunks.rounds + kLag; ++round) {
    if (round < chunks.rounds) owners.contribute(round);
    if (round < chunks.rounds) owners.reduce(round, result);
    if (round >= kLag) owners.share(round - kLag, result);
  }
  return builder.take("direct");
}

}  // namespace
}  // namespace allreduce_direct

const Algorithm kAllreduceDirect{.name = "direct",
                                 .what = Collective::kAllreduce,
                                 .preserves_order = PreservesOrder::kAlways,
                                 .cost_us = allreduce_direct::cost_us,
                                 .build = allreduce_direct::build};

}  // namespace rueda::schedule
