// Two-level allgather: each block goes to one rank of every other host, which passes it on inside its host.
// Chunks are passed on while the next ones arrive. Any topology. Steps: 2. Bytes between hosts: every block
// once per host.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace allgather_two_level {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (topology.is_single_host()) return std::nullopt;
  const double bytes = bytes_of(spec, Blocks::of_counts(spec.counts).largest());
  const int32_t hosts = topology.host_count();
  const int32_t locals = largest_host(topology);
  const Phase between{.local_messages = locals - 1.0,
                      .local_bytes = (locals - 1) * bytes,
                      .remote_messages = hosts - 1.0,
                      .remote_bytes = (hosts - 1) * bytes,
                      .streams = locals,
                      .senders = hosts - 1};
  const double forwarded = (hosts - 1.0) * (locals - 1);
  return phase_us(topology, between) +
         phase_us(topology, {.local_messages = forwarded, .local_bytes = forwarded * bytes});
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 3 * topology.size());
  const Slice mine = input(0, blocks.count(me));
  builder.copy(output(blocks.begin(me), blocks.count(me)), mine);
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  TwoLevelOwners owners(builder, call);
  for (int64_t round = 0; round < chunks.rounds; ++round) {
    owners.share(round, mine);
    owners.forward(round);
  }
  return builder.take("two_level");
}

}  // namespace
}  // namespace allgather_two_level

const Algorithm kAllgatherTwoLevel{.name = "two_level",
                                   .what = Collective::kAllgather,
                                   .preserves_order = PreservesOrder::kAlways,
                                   .cost_us = allgather_two_level::cost_us,
                                   .build = allgather_two_level::build};

}  // namespace rueda::schedule
