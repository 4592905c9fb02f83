// Pairwise alltoall: in step s a rank sends to the rank s places on and receives from the one s places back.
// Thakur, Rabenseifner and Gropp (2005).
// Steps: n-1 (they overlap). Bytes sent per rank: what it has for others, once.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace alltoall_pairwise {
namespace {

constexpr size_t kInFlight =
    4;  // sends between hosts at a time: enough to fill a link, few enough against incast

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const int64_t largest = Blocks::of_counts(spec.counts).largest();
  return phase_us(topology, all_to_all(topology, bytes_of(spec, largest)));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  std::vector<int64_t> leaving;
  std::vector<int64_t> arriving;
  for (Rank rank = 0; rank < n; ++rank) {
    leaving.push_back(spec.counts[me * n + rank]);
    arriving.push_back(spec.counts[rank * n + me]);
  }
  const Blocks in = Blocks::of_counts(leaving);
  const Blocks out = Blocks::of_counts(arriving);
  std::vector<StepId> sends;
  for (Rank distance = 1; distance < n; ++distance) {
    const Rank to = mod(me + distance, n);
    const Rank from = mod(me - distance, n);
    const StepId send = builder.send(to, input(in.begin(to), in.count(to)));
    builder.recv(from, output(out.begin(from), out.count(from)));
    if (send == kNoStep) continue;
    if (!topology.is_single_host() && sends.size() >= kInFlight)
      builder.order(send, sends[sends.size() - kInFlight]);
    sends.push_back(send);
  }
  builder.copy(output(out.begin(me), out.count(me)), input(in.begin(me), in.count(me)));
  return builder.take("pairwise");
}

}  // namespace
}  // namespace alltoall_pairwise

const Algorithm kAlltoallPairwise{.name = "pairwise",
                                  .what = Collective::kAlltoall,
                                  .preserves_order = PreservesOrder::kAlways,
                                  .cost_us = alltoall_pairwise::cost_us,
                                  .build = alltoall_pairwise::build};

}  // namespace rueda::schedule
