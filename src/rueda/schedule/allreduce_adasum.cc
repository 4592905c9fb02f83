// Adasum allreduce: a binary tree over rank bits, lowest bit first; two blocks of ranks exchange their
// vectors and every rank combines them itself, left block first, so that all ranks compute the same bits. Any
// number of ranks: a block without a partner waits for the next level. Maleki et al., "Scaling distributed
// training with adaptive summation" (2020). Steps: ceil(log2 n). Bytes sent per rank: S log2 n for powers of
// two, in the accumulator's type.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op != ReduceOp::kAdasum) return std::nullopt;
  const double bytes = partial_bytes_of(spec, spec.count);
  // Three dot products and the combination cost about as much as four passes of a reduction.
  return ceil_log2(topology.size()) *
         (phase_us(topology, anywhere(topology, bytes)) + 4 * reduce_us(topology, bytes));
}

// All ranks of a block know its vector. The right block has m ≤ `width` ranks: rank i of the left block
// receives from its rank i mod m, and rank j of the right block receives from rank j of the left one.
void exchange(Builder& builder, Rank me, Rank left, const std::pair<Rank, Rank>& right, const Slice& mine,
              const Slice& theirs) {
  const auto [first, end] = right;
  const Rank width = end - first;
  if (me < first) {
    const Rank i = me - left;
    if (i < width) builder.send(first + i, mine);
    builder.recv(first + i % width, theirs, WireType::kAccumulator);
    return;
  }
  const Rank j = me - first;
  for (Rank i = j; i < first - left; i += width) builder.send(left + i, mine);
  builder.recv(left + j, theirs, WireType::kAccumulator);
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
  for (Rank width = 1; width < n; width *= 2) {
    const Rank left = me / (2 * width) * (2 * width);
    const Rank right = left + width;
    if (right >= n) continue;
    exchange(builder, me, left, {right, std::min(n, right + width)}, mine, theirs);
    if (me < right)
      builder.adasum(next, mine, theirs);
    else
      builder.adasum(next, theirs, mine);
    std::swap(mine, next);
  }
  builder.deliver(out, mine);
  return builder.take("adasum");
}

}  // namespace

// The tree over ranks is the canonical order of Adasum, so no other algorithm may be chosen for it.
const Algorithm kAllreduceAdasum{.name = "adasum",
                                 .what = Collective::kAllreduce,
                                 .preserves_order = PreservesOrder::kAlways,
                                 .cost_us = cost_us,
                                 .build = build};

}  // namespace rueda::schedule
