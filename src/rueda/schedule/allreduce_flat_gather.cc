// Flat gather: every rank sends its whole buffer to all others, and each rank reduces all of them in
// canonical order. It has the lowest possible latency, for tiny buffers and for two ranks. Order preserving.
// Steps: 1. Bytes sent per rank: (n-1) S.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"
#include "rueda/schedule/reduction_order.h"

namespace rueda::schedule {
namespace allreduce_flat_gather {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const double bytes = bytes_of(spec, spec.count);
  return phase_us(topology, all_to_all(topology, bytes)) + reduce_us(topology, bytes * topology.size());
}

// With two ranks, the received data waits in scratch until my input has been sent, and is then added into the
// output. Receiving it directly into the output could deadlock: both ranks would wait until the other takes
// what they send.
void reduce_pair(Builder& builder, Rank me, const Slice& own, const Slice& recv_slice) {
  const Slice to = output(own.begin, own.count);
  builder.recv(1 - me, recv_slice);
  me == 0 ? builder.reduce(to, own, recv_slice) : builder.reduce(to, recv_slice, own);
  builder.deliver(to, to);
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const auto hosts = topology.members();
  const Chunks chunks = Chunks::plan(spec, topology, spec.count, 2 * n);
  const int64_t slot = std::min(chunks.chunk_elements, spec.count);
  const int32_t levels = reduction_levels(hosts);
  const Slice sums = builder.scratch(n > 1 ? levels * kSlots * slot : 0);
  for (int64_t round = 0; round < chunks.rounds; ++round) {
    const Slice own = chunks.of(input(0, spec.count), round);
    if (own.count == 0) break;
    for (Rank distance = 1; distance < n; ++distance) builder.send(mod(me - distance, n), own);
    const ReductionScratch scratch = reduction_scratch(sums, levels, slot, round, own.count);
    if (n == 2 && can_accumulate_in_output(spec)) {
      reduce_pair(builder, me, own, scratch.levels.front());
      continue;
    }
    std::vector<std::vector<Operand>> operands;
    for (const auto& host : hosts) {
      operands.emplace_back();
      for (Rank rank : host)
        operands.back().push_back(rank == me ? mine(own) : from_peer(rank, WireType::kElement));
    }
    // The sum stays in scratch until my input has been sent, because input and output may be the same memory.
    builder.deliver(output(own.begin, own.count), reduce_host_operands(builder, spec.op, operands, scratch));
  }
  return builder.take("flat_gather");
}

}  // namespace
}  // namespace allreduce_flat_gather

const Algorithm kAllreduceFlatGather{.name = "flat_gather",
                                     .what = Collective::kAllreduce,
                                     .preserves_order = PreservesOrder::kAlways,
                                     .cost_us = allreduce_flat_gather::cost_us,
                                     .build = allreduce_flat_gather::build};

}  // namespace rueda::schedule
