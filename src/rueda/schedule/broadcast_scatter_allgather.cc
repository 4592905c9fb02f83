// Scatter-allgather broadcast: the root gives every rank its block, and every rank gives it to all others.
// Barnett et al., "Interprocessor collective communication library" (1994), known as van de Geijn's.
// Steps: 2. Bytes sent by the root: 2 (n-1)/n S; by the others: (n-2)/n S.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace broadcast_scatter_allgather {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const int64_t block = Blocks::even(spec.count, topology.size(), spec.dtype).largest();
  return 2 * phase_us(topology, all_to_all(topology, bytes_of(spec, block)));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Blocks blocks = Blocks::even(spec.count, n, spec.dtype);
  const Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 2 * n);
  const bool is_root = me == spec.root;
  const auto block = [&](Rank rank, int64_t round) {
    const Buffer buffer = is_root ? Buffer::kInput : Buffer::kOutput;
    return chunks.of({buffer, blocks.begin(rank), blocks.count(rank)}, round);
  };
  for (int64_t round = 0; round < chunks.rounds; ++round) {
    for (Rank distance = 1; is_root && distance < n; ++distance) {
      const Rank rank = mod(me + distance, n);
      builder.send(rank, block(rank, round));
    }
    if (!is_root) builder.recv(spec.root, block(me, round));
    for (Rank distance = 1; distance < n; ++distance) {
      const Rank to = mod(me - distance, n);
      const Rank from = mod(me + distance, n);
      if (to != spec.root) builder.send(to, block(me, round));
      if (!is_root) builder.recv(from, block(from, round));
    }
  }
  if (is_root) builder.copy(output(0, spec.count), input(0, spec.count));
  return builder.take("scatter_allgather");
}

}  // namespace
}  // namespace broadcast_scatter_allgather

const Algorithm kBroadcastScatterAllgather{.name = "scatter_allgather",
                                           .what = Collective::kBroadcast,
                                           .preserves_order = PreservesOrder::kAlways,
                                           .cost_us = broadcast_scatter_allgather::cost_us,
                                           .build = broadcast_scatter_allgather::build};

}  // namespace rueda::schedule
