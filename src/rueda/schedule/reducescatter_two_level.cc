// Two-level reducescatter: the first half of the two-level allreduce. Order preserving; any topology.
// Steps: 2. Bytes between hosts: (H-1)/H S per host, in the accumulator's type.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace reducescatter_two_level {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (topology.is_single_host()) return std::nullopt;
  const int64_t largest = Blocks::of_counts(spec.counts).largest();
  const int32_t hosts = topology.host_count();
  const int32_t locals = largest_host(topology);
  const double bytes = bytes_of(spec, largest);
  const double partial = locals > 1 ? partial_bytes_of(spec, largest) : bytes;
  const double in_host = phase_us(
      topology, {.local_messages = (locals - 1.0) * hosts, .local_bytes = (locals - 1.0) * hosts * bytes});
  const double between = phase_us(topology, {.remote_messages = hosts - 1.0,
                                             .remote_bytes = (hosts - 1) * partial,
                                             .streams = locals,
                                             .senders = hosts - 1});
  return in_host + between + reduce_us(topology, bytes * hosts * (locals + 1));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 3 * topology.size());
  const Slice result = output(0, blocks.count(me));
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  TwoLevelOwners owners(builder, call);
  for (int64_t round = 0; round < chunks.rounds + 1; ++round) {
    if (round < chunks.rounds) owners.contribute(round);
    if (round < chunks.rounds) owners.reduce_in_host(round);
    if (round >= 1) owners.exchange(round - 1);
    if (round >= 1) owners.reduce_hosts(round - 1, result);
  }
  return builder.take("two_level");
}

}  // namespace
}  // namespace reducescatter_two_level

const Algorithm kReducescatterTwoLevel{.name = "two_level",
                                       .what = Collective::kReducescatter,
                                       .preserves_order = PreservesOrder::kAlways,
                                       .cost_us = reducescatter_two_level::cost_us,
                                       .build = reducescatter_two_level::build};

}  // namespace rueda::schedule
