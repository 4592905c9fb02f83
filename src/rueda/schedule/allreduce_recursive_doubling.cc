// Recursive doubling: whole buffers are exchanged at distance 1, 2, 4, …, and both sides add; for small
// buffers. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
// (2005). Steps: log2 n, two more if n is not a power of two. Bytes sent per rank: S log2 n. Its tree is the
// canonical one if every rank has its own host.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/doubling.h"

namespace rueda::schedule {
namespace allreduce_recursive_doubling {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const Rank n = topology.size();
  const Hypercube cube(n);
  const double steps = ceil_log2(cube.size) + (cube.extra > 0 ? 2 : 0);
  const double exchange = phase_us(topology, anywhere(topology, partial_bytes_of(spec, spec.count)));
  return steps * (exchange + reduce_us(topology, bytes_of(spec, spec.count)));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Doubling among{.places = topology.size(),
                       .me = me,
                       .rank_of = [](Rank place) { return place; },
                       .wire_of = [](Rank) { return WireType::kElement; }};
  exchange_sums(builder, spec.op, among, input(0, spec.count), output(0, spec.count));
  return builder.take("recursive_doubling");
}

}  // namespace
}  // namespace allreduce_recursive_doubling

const Algorithm kAllreduceRecursiveDoubling{.name = "recursive_doubling",
                                            .what = Collective::kAllreduce,
                                            .preserves_order = PreservesOrder::kWhereHostsHaveOneRank,
                                            .cost_us = allreduce_recursive_doubling::cost_us,
                                            .build = allreduce_recursive_doubling::build};

}  // namespace rueda::schedule
