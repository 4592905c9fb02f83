// Recursive doubling: whole buffers are exchanged at distance 1, 2, 4, …, and both sides add; for small
// buffers. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
// (2005). Steps: log2 n, two more if n is not a power of two. Bytes sent per rank: S log2 n. Its tree is the
// canonical one if every rank has its own host.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/hypercube.h"
#include "rueda/schedule/reduction_order.h"

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
  const Hypercube cube(topology.size());
  const Slice in = input(0, spec.count);
  const Slice out = output(0, spec.count);
  if (cube.folds_in(me)) {
    builder.send(me + 1, in);
    builder.recv(me + 1, out);
    return builder.take("recursive_doubling");
  }
  // Two sums alternate: one is sent while the other is computed. The output is written last, because it may
  // be the memory of the input.
  const int64_t need = topology.size() > 1 ? spec.count : 0;
  const Slice sums[2] = {builder.scratch(need), builder.scratch(need)};
  const Slice theirs = builder.scratch(is_commutative(spec.op) ? 0 : need);
  int32_t made = 0;
  Slice current = in;
  if (cube.takes_one_in(me)) {
    const CombineTarget where{.to = sums[made++ % 2], .recv_slice = theirs};
    current = combine(builder, spec.op, from_peer(me - 1, WireType::kElement), mine(in), where).own;
  }
  const int32_t corner = cube.corner_of(me);
  for (int32_t distance = 1; distance < cube.size; distance *= 2) {
    const int32_t other = corner ^ distance;
    const Rank peer = cube.rank_at(other);
    const bool is_raw = distance == 1 && !cube.takes_one_in(peer);
    const WireType wire = is_raw ? WireType::kElement : WireType::kAccumulator;
    const CombineTarget where{.to = sums[made++ % 2], .recv_slice = theirs};
    builder.send(peer, current);
    const Operand own = mine(current);
    const Operand got = from_peer(peer, wire);
    current = (corner < other ? combine(builder, spec.op, own, got, where)
                              : combine(builder, spec.op, got, own, where))
                  .own;
  }
  builder.deliver(out, current);
  if (cube.takes_one_in(me)) builder.send(me - 1, out);
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
