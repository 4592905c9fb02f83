// Adasum allreduce in the tree of adasum_tree.h. Maleki et al., "Scaling distributed training with adaptive
// summation" (2020). Steps: ceil(log2 n). Bytes sent per rank: S log2 n for powers of two, in the
// accumulator's type.
#include <utility>

#include "rueda/schedule/adasum_tree.h"
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace allreduce_adasum {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op != ReduceOp::kAdasum) return std::nullopt;
  const double bytes = partial_bytes_of(spec, spec.count);
  // Three dot products and the combination cost about as much as four passes of a reduction.
  return ceil_log2(topology.size()) *
         (phase_us(topology, anywhere(topology, bytes)) + 4 * reduce_us(topology, bytes));
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Slice in = input(0, spec.count);
  const Slice out = output(0, spec.count);
  if (n == 1) {
    builder.deliver(out, in);
    return builder.take("adasum");
  }
  Slice mine = builder.scratch(spec.count);
  Slice next = builder.scratch(spec.count);
  const Slice theirs = builder.scratch(spec.count);
  builder.copy(mine, in);
  for (const AdasumLevel& level : adasum_levels(n, me)) {
    for (const Rank to : level.to) builder.send(to, mine);
    builder.recv(level.from, theirs, WireType::kAccumulator);
    if (level.is_left)
      builder.adasum(next, mine, theirs);
    else
      builder.adasum(next, theirs, mine);
    std::swap(mine, next);
  }
  builder.deliver(out, mine);
  return builder.take("adasum");
}

}  // namespace
}  // namespace allreduce_adasum

// The tree over ranks is the canonical order of Adasum, so no other algorithm may be chosen for it.
const Algorithm kAllreduceAdasum{.name = "adasum",
                                 .what = Collective::kAllreduce,
                                 .preserves_order = PreservesOrder::kAlways,
                                 .cost_us = allreduce_adasum::cost_us,
                                 .build = allreduce_adasum::build};

}  // namespace rueda::schedule
