// Halving-doubling: recursive halving makes the reduce-scatter, recursive doubling the allgather.
// Rabenseifner, "Optimization of collective reduction operations" (2004).
// Steps: 2 log2 n, two more when n is no power of two. Bytes sent per rank: 2 (n-1)/n S for powers of two.
// Not order preserving: a sum's order depends on the element's block.
#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/fold.h"
#include "rueda/schedule/powers.h"

namespace rueda::schedule {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const Hypercube cube(topology.size());
  double total = 0;
  for (int32_t parts = 2; parts <= cube.size; parts *= 2) {
    const int64_t half = spec.count / parts;
    total += phase_us(topology, anywhere(topology, partial_bytes_of(spec, half)));
    total += phase_us(topology, anywhere(topology, bytes_of(spec, half)));
    total += reduce_us(topology, bytes_of(spec, half));
  }
  if (cube.extra > 0) {
    total += 2 * phase_us(topology, anywhere(topology, bytes_of(spec, spec.count)));
    total += reduce_us(topology, bytes_of(spec, spec.count));
  }
  return total;
}

struct Halving {
  Builder& builder;
  const Blocks& blocks;
  Slice sums;  // [count]: the output, or scratch where the accumulator is wider

  [[nodiscard]] Slice range(Space space, int32_t first, int32_t count) const {
    const int64_t begin = blocks.begin(first);
    const int64_t base = space == Space::kScratch ? sums.begin : 0;
    return {space, base + begin, blocks.begin(first + count) - begin};
  }
};

void halve(const Halving& halving, const Hypercube& cube, Rank me) {
  const int32_t corner = cube.corner_of(me);
  Builder& builder = halving.builder;
  const Space sums = halving.sums.space;
  int32_t first = 0;  // of the blocks I still hold; there are 2 * distance
  for (int32_t distance = cube.size / 2; distance >= 1; distance /= 2) {
    const Rank peer = cube.rank_at(corner ^ distance);
    const bool is_start = distance == cube.size / 2;
    const Space mine = is_start && !cube.takes_one_in(me) ? Space::kInput : sums;
    const bool is_raw = is_start && !cube.takes_one_in(peer);
    const Wire wire = is_raw ? Wire::kElement : builder.wire_of(halving.sums);
    const int32_t kept = (corner & distance) != 0 ? first + distance : first;
    const int32_t given = (corner & distance) != 0 ? first : first + distance;
    builder.send(peer, halving.range(mine, given, distance));
    builder.recv_reduce(peer, halving.range(sums, kept, distance), halving.range(mine, kept, distance), wire);
    first = kept;
  }
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Hypercube cube(topology.size());
  const Slice in = input(0, spec.count);
  const Slice out = output(0, spec.count);
  if (cube.folds_in(me)) {
    builder.send(me + 1, in);
    builder.recv(me + 1, out);
    return builder.take("halving_doubling");
  }
  const bool is_in_output = can_accumulate_in_output(spec);
  const Slice sums = is_in_output ? out : builder.scratch(topology.size() > 1 ? spec.count : 0);
  const Blocks blocks = Blocks::even(spec.count, cube.size, spec.dtype);
  const Halving halving{.builder = builder, .blocks = blocks, .sums = sums};
  if (cube.takes_one_in(me)) builder.recv_reduce(me - 1, sums, in, Wire::kElement);
  halve(halving, cube, me);
  const int32_t corner = cube.corner_of(me);
  const Space summed = cube.size > 1 ? sums.space : Space::kInput;
  builder.deliver(halving.range(Space::kOutput, corner, 1), halving.range(summed, corner, 1));
  for (int32_t distance = 1; distance < cube.size; distance *= 2) {
    const int32_t other = corner ^ distance;
    const Rank peer = cube.rank_at(other);
    builder.send(peer, halving.range(Space::kOutput, corner & ~(distance - 1), distance));
    builder.recv(peer, halving.range(Space::kOutput, other & ~(distance - 1), distance));
  }
  if (cube.takes_one_in(me)) builder.send(me - 1, out);
  return builder.take("halving_doubling");
}

}  // namespace

const Algorithm kAllreduceHalvingDoubling{.name = "halving_doubling",
                                          .what = Collective::kAllreduce,
                                          .is_order_preserving = false,
                                          .cost_us = cost_us,
                                          .build = build};

}  // namespace rueda::schedule
