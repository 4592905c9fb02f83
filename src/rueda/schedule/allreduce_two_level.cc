// Two-level allreduce: every rank owns a block; inside each host one rank (the entry) reduces the host's
// contributions to it in rank order, the owner adds the hosts' partial sums by their tree, and results return
// the same way. Any topology. Order preserving; between hosts partial sums keep the accumulator's precision.
// Steps: 4 (in host, between hosts, between hosts, in host). Bytes between hosts, per host, H hosts: 2
// (H-1)/H S instead of the flat algorithms' number of ranks per host times that. Bytes inside a host, per
// rank of L: 2 (L-1)/L S. Source of the idea: hierarchical allreduce as in Jia et al., "Highly scalable deep
// learning training system with mixed-precision" (2018), with one rail per local rank.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace allreduce_two_level {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum || topology.is_single_host()) return std::nullopt;
  const int32_t hosts = topology.host_count();
  const int32_t locals = largest_host(topology);
  const int64_t block = Blocks::even(spec.count, topology.size(), spec.dtype).largest();
  const double bytes = bytes_of(spec, block);
  const double partial = locals > 1 ? partial_bytes_of(spec, block) : bytes;
  const double in_host = phase_us(
      topology, {.local_messages = (locals - 1.0) * hosts, .local_bytes = (locals - 1.0) * hosts * bytes});
  const auto between = [&](double block_bytes) {
    return phase_us(topology, {.remote_messages = hosts - 1.0,
                               .remote_bytes = (hosts - 1) * block_bytes,
                               .streams = locals,
                               .senders = hosts - 1});
  };
  return 2 * in_host + between(partial) + between(bytes) + reduce_us(topology, bytes * hosts * (locals + 1));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  Blocks blocks = Blocks::even(spec.count, n, spec.dtype);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 5 * n);
  const Slice result = output(blocks.begin(me), blocks.count(me));
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  TwoLevelOwners owners(builder, call);
  for (int64_t round = 0; round < chunks.rounds + 2; ++round) {
    const bool has_next = round < chunks.rounds;
    const bool has_middle = round >= 1 && round - 1 < chunks.rounds;
    if (has_next) owners.contribute(round);
    if (has_next) owners.reduce_in_host(round);
    if (has_middle) owners.exchange(round - 1);
    if (has_middle) owners.reduce_hosts(round - 1, result);
    if (round >= 2) owners.share(round - 2, result);
    if (round >= 2) owners.forward(round - 2);
  }
  return builder.take("two_level");
}

}  // namespace
}  // namespace allreduce_two_level

const Algorithm kAllreduceTwoLevel{.name = "two_level",
                                   .what = Collective::kAllreduce,
                                   .preserves_order = PreservesOrder::kAlways,
                                   .cost_us = allreduce_two_level::cost_us,
                                   .build = allreduce_two_level::build};

}  // namespace rueda::schedule
