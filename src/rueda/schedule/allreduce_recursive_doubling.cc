// Recursive doubling: whole buffers are exchanged at distance 1, 2, 4, …, and both sides add; for small
// buffers. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
// (2005). Steps: log2 n, two more when n is no power of two. Bytes sent per rank: S log2 n. All ranks compute
// the same tree, hence the same bits, but it is not the rank order.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/fold.h"
#include "rueda/schedule/powers.h"

namespace rueda::schedule {
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
  const Hypercube cube(topology.size());
  const Slice in = input(0, spec.count);
  const Slice out = output(0, spec.count);
  if (cube.folds_in(me)) {
    builder.send(me + 1, in);
    builder.recv(me + 1, out);
    return builder.take("recursive_doubling");
  }
  // Two sums alternate, one on its way while the other is made; the output waits, it may be the input's
  // memory.
  const int64_t need = topology.size() > 1 ? spec.count : 0;
  const Slice sums[2] = {builder.scratch(need), builder.scratch(need)};
  const Slice theirs = builder.scratch(is_commutative(spec.op) ? 0 : need);
  int32_t made = 0;
  Slice current = in;
  if (cube.takes_one_in(me)) {
    builder.recv_reduce(me - 1, sums[made], in, Wire::kElement);
    current = sums[made++ % 2];
  }
  const int32_t corner = cube.corner_of(me);
  for (int32_t distance = 1; distance < cube.size; distance *= 2) {
    const int32_t other = corner ^ distance;
    const Rank peer = cube.rank_at(other);
    const bool is_raw = distance == 1 && !cube.takes_one_in(peer);
    const Wire wire = is_raw ? Wire::kElement : Wire::kAccumulator;
    const Slice sum = sums[made++ % 2];
    builder.send(peer, current);
    if (is_commutative(spec.op) || corner < other) {
      builder.recv_reduce(peer, sum, current, wire);
    } else {  // both sides must take the operands in the same order
      builder.recv(peer, theirs, wire);
      builder.reduce(sum, theirs, current);
    }
    current = sum;
  }
  builder.deliver(out, current);
  if (cube.takes_one_in(me)) builder.send(me - 1, out);
  return builder.take("recursive_doubling");
}

}  // namespace

const Algorithm kAllreduceRecursiveDoubling{.name = "recursive_doubling",
                                            .what = Collective::kAllreduce,
                                            .is_order_preserving = false,
                                            .cost_us = cost_us,
                                            .build = build};

}  // namespace rueda::schedule
