// Dissemination barrier: in step k, a rank tells the rank 2^k places further that it and all ranks it knows
// of have arrived. Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988). Steps:
// ceil(log2 n). Bytes: none, messages are empty.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace barrier_dissemination {
namespace {

std::optional<double> cost_us(const Spec&, const Topology& topology) {
  return ceil_log2(topology.size()) * phase_us(topology, anywhere(topology, 0));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  std::vector<StepId> heard;
  for (Rank distance = 1; distance < n; distance *= 2) {
    const StepId told = builder.signal(mod(me + distance, n));
    for (StepId earlier : heard)
      builder.order(told, earlier);  // all of it: arrivals may overtake one another
    heard.push_back(builder.await(mod(me - distance, n)));
  }
  return builder.take("dissemination");
}

}  // namespace
}  // namespace barrier_dissemination

const Algorithm kBarrierDissemination{.name = "dissemination",
                                      .what = Collective::kBarrier,
                                      .preserves_order = PreservesOrder::kAlways,
                                      .cost_us = barrier_dissemination::cost_us,
                                      .build = barrier_dissemination::build};

}  // namespace rueda::schedule
