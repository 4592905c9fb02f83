// Binomial broadcast: each step doubles the number of ranks that have the data. Textbook; see Thakur,
// Rabenseifner and Gropp (2005). Steps: ceil(log2 n). Bytes sent by the root: S log2 n.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/tree.h"

namespace rueda::schedule {
namespace broadcast_binomial {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  return ceil_log2(topology.size()) * phase_us(topology, anywhere(topology, bytes_of(spec, spec.count)));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  const Rank n = topology.size();
  std::vector<Rank> ranks;
  for (Rank i = 0; i < n; ++i) ranks.push_back(mod(spec.root + i, n));
  TreePlace place;
  join_binomial(ranks, mod(me - spec.root, n), place);
  const Chunks chunks = Chunks::plan(spec, topology, spec.count, 1 + ceil_log2(n));
  return broadcast_along(spec, chunks, place, "binomial");
}

}  // namespace
}  // namespace broadcast_binomial

const Algorithm kBroadcastBinomial{.name = "binomial",
                                   .what = Collective::kBroadcast,
                                   .preserves_order = PreservesOrder::kAlways,
                                   .cost_us = broadcast_binomial::cost_us,
                                   .build = broadcast_binomial::build};

}  // namespace rueda::schedule
