// Halving-doubling: recursive halving makes the reduce-scatter, recursive doubling the allgather.
// Rabenseifner, "Optimization of collective reduction operations" (2004). Steps: 2 log2 n, two more if n is
// not a power of two. Bytes sent per rank: 2 (n-1)/n S for powers of two. Neighbours exchange first, so that
// the sum of every block is the same tree: the canonical one if every rank has its own host. (Rabenseifner
// begins with the farthest rank, which gives another tree.)
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/hypercube.h"
#include "rueda/schedule/reduction_order.h"

namespace rueda::schedule {
namespace allreduce_halving_doubling {
namespace {

// Whether every rank's peer at this distance is on the same host.
bool stays_in_hosts(const Topology& topology, const Hypercube& cube, int32_t distance) {
  for (int32_t corner = 0; corner < cube.size; ++corner)
    if (topology.host_of[cube.rank_at(corner)] != topology.host_of[cube.rank_at(corner ^ distance)])
      return false;
  return true;
}

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  const Hypercube cube(topology.size());
  double total = 0;
  for (int32_t distance = 1; distance < cube.size; distance *= 2) {
    const int64_t half = spec.count / (2 * distance);
    const bool is_local = stays_in_hosts(topology, cube, distance);
    const auto exchange = [&](double bytes) {
      const Phase local{.local_messages = 1, .local_bytes = bytes};
      return phase_us(topology, is_local ? local : anywhere(topology, bytes));
    };
    total += exchange(partial_bytes_of(spec, half)) + exchange(bytes_of(spec, half));
    total += reduce_us(topology, bytes_of(spec, half));
  }
  if (cube.extra > 0) {
    total += 2 * phase_us(topology, anywhere(topology, bytes_of(spec, spec.count)));
    total += reduce_us(topology, bytes_of(spec, spec.count));
  }
  return total;
}

// The buffer is sent in chunks of half the usual size. One is shared while the next one is reduced, so that
// the link stays busy despite a late rank or a long latency, and at most two chunks are in flight to each
// rank. Larger ones arrive in bursts that overflow the queues: between 8 hosts of 1 Gbit/s, 64 MiB took 1.02
// s with chunks of 128 KiB and 1.05 s with 256 KiB; 16 MiB took 255 ms with 256 KiB and 345 ms with 1 MiB.
class Halving {
 public:
  Halving(Builder& builder, const Spec& spec, const Topology& topology, Rank me)
      : builder_(builder), spec_(spec), cube_(topology.size()), me_(me), corner_(cube_.corner_of(me)) {
    const int64_t block = (spec.count + cube_.size - 1) / cube_.size;
    Topology by_block = topology;
    by_block.chunk_bytes = std::max<int64_t>(1, topology.chunk_bytes / 2 / cube_.size);
    const Chunks chunks = Chunks::plan(spec, by_block, block, 4 * ceil_log2(cube_.size) + 3);
    chunks_ = {.chunk_elements = chunks.chunk_elements * cube_.size, .rounds = chunks.rounds};
  }

  void run() {
    if (cube_.folds_in(me_)) return run_folded_in();
    const int64_t need = cube_.size > 1 ? spec_.count : 0;
    sums_ = can_accumulate_in_output(spec_) ? output(0, spec_.count) : builder_.scratch(need);
    theirs_ = builder_.scratch(is_commutative(spec_.op) ? 0 : need);
    const int32_t steps = ceil_log2(cube_.size);
    for (int64_t round = 0; round <= chunks_.rounds; ++round) {
      if (round < chunks_.rounds) begin(round);
      for (int32_t step = 0; step < steps; ++step) {
        if (round < chunks_.rounds) halve(round, step);
        if (round > 0) share(round - 1, step);
      }
      if (round < chunks_.rounds) deliver(round);
      if (round > 0 && cube_.takes_one_in(me_)) builder_.send(me_ - 1, chunk(Buffer::kOutput, round - 1));
    }
  }

 private:
  void run_folded_in() {
    for (int64_t round = 0; round < chunks_.rounds; ++round)
      builder_.send(me_ + 1, chunk(Buffer::kInput, round));
    for (int64_t round = 0; round < chunks_.rounds; ++round)
      builder_.recv(me_ + 1, chunk(Buffer::kOutput, round));
  }

  void begin(int64_t round) {
    if (!cube_.takes_one_in(me_)) return;
    const Slice own = chunk(Buffer::kInput, round);
    combine(builder_, spec_.op, from_peer(me_ - 1, WireType::kElement), mine(own),
            recv_slice(round, 0, cube_.size));
  }

  void halve(int64_t round, int32_t step) {
    const int32_t distance = 1 << step;
    const int32_t width = cube_.size / 2 / distance;  // blocks that I keep
    const Rank peer = cube_.rank_at(corner_ ^ distance);
    const bool is_start = step == 0;
    const Buffer held = is_start && !cube_.takes_one_in(me_) ? Buffer::kInput : sums_.buffer;
    const bool is_raw = is_start && !cube_.takes_one_in(peer);
    const int32_t first = first_after(step);
    const int32_t kept = first_after(step + 1);
    builder_.send(peer, range(held, round, kept == first ? first + width : first, width));
    const Operand own = mine(range(held, round, kept, width));
    const Operand got = from_peer(peer, is_raw ? WireType::kElement : builder_.wire_of(sums_));
    const bool is_upper = kept != first;
    combine(builder_, spec_.op, is_upper ? got : own, is_upper ? own : got, recv_slice(round, kept, width));
  }

  void deliver(int64_t round) {
    const int32_t block = first_after(ceil_log2(cube_.size));
    const Buffer summed = cube_.size > 1 ? sums_.buffer : Buffer::kInput;
    builder_.deliver(range(Buffer::kOutput, round, block, 1), range(summed, round, block, 1));
  }

  void share(int64_t round, int32_t step) {
    const int32_t width = 1 << step;  // blocks that are mine to pass on
    const Rank peer = cube_.rank_at(corner_ ^ (cube_.size / 2 / width));
    const int32_t first = first_after(ceil_log2(cube_.size)) & ~(width - 1);
    builder_.send(peer, range(Buffer::kOutput, round, first, width));
    builder_.recv(peer, range(Buffer::kOutput, round, first ^ width, width));
  }

  // The blocks that are left to me after this many steps.
  [[nodiscard]] int32_t first_after(int32_t steps) const {
    int32_t first = 0;
    for (int32_t step = 0; step < steps; ++step)
      if ((corner_ >> step & 1) != 0) first += cube_.size / 2 >> step;
    return first;
  }

  [[nodiscard]] Slice chunk(Buffer buffer, int64_t round) const {
    return chunks_.of({buffer, 0, spec_.count}, round);
  }

  [[nodiscard]] Slice range(Buffer buffer, int64_t round, int32_t first, int32_t count) const {
    const Slice whole = chunk(buffer, round);
    const Blocks blocks = Blocks::even(whole.count, cube_.size, spec_.dtype);
    const int64_t base = buffer == Buffer::kScratch ? sums_.begin : 0;
    return {buffer, base + whole.begin + blocks.begin(first),
            blocks.begin(first + count) - blocks.begin(first)};
  }

  [[nodiscard]] CombineTarget recv_slice(int64_t round, int32_t first, int32_t count) const {
    const Slice to = range(sums_.buffer, round, first, count);
    if (theirs_.count == 0) return {.to = to, .recv_slice = {}};
    const int64_t base = sums_.buffer == Buffer::kScratch ? sums_.begin : 0;
    return {.to = to, .recv_slice = part(theirs_, to.begin - base, to.count)};
  }

  Builder& builder_;
  const Spec& spec_;
  Hypercube cube_;
  Rank me_;
  int32_t corner_;
  Chunks chunks_;
  Slice sums_;    // [count]: the output, or scratch if the accumulator is wider
  Slice theirs_;  // [count] scratch if the order of operands matters
};

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Halving(builder, spec, topology, me).run();
  return builder.take("halving_doubling");
}

}  // namespace
}  // namespace allreduce_halving_doubling

const Algorithm kAllreduceHalvingDoubling{.name = "halving_doubling",
                                          .what = Collective::kAllreduce,
                                          .preserves_order = PreservesOrder::kWhereHostsHaveOneRank,
                                          .cost_us = allreduce_halving_doubling::cost_us,
                                          .build = allreduce_halving_doubling::build};

}  // namespace rueda::schedule
