// Halving-doubling: recursive halving makes the reduce-scatter, recursive doubling the allgather.
// Rabenseifner, "Optimization of collective reduction operations" (2004). Neighbours exchange first, so that
// the sum of every block is the same tree: the canonical one if every rank has its own host. (Rabenseifner
// begins with the farthest rank, which gives another tree.)
// Steps: 2 ceil(log2 n) for any n. Bytes sent per rank: 2 (n-1)/n S for powers of two.
//
// Other numbers of ranks. The textbook lets a rank beyond the power of two send its whole buffer to a
// neighbour and get the whole result back: 4 S for that neighbour. The 3-2 elimination of Rabenseifner and
// Traff, "More efficient reduction algorithms for non-power-of-two number of processors" (2004), saves half
// of that, but its triples are not subtrees of the canonical order, so results would have other bits. Here
// the two ranks of such a corner halve the buffer like any others, and subtrees of unequal size divide theirs
// in proportion (scatter_tree.h). Every addition is one of the canonical tree; only its place is new. A rank
// sends (n-1)/n S to scatter, and receives S / (l + r) when subtrees of l and r ranks meet; the way back is
// the same, reversed. For 3 to 130 ranks that is at most 1.1 S each way, where the neighbour of the textbook
// has 1.5 to 2 S.
#include <algorithm>
#include <cmath>
#include <utility>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/hypercube.h"
#include "rueda/schedule/reduction_order.h"
#include "rueda/schedule/scatter_tree.h"

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

// The ranks of 2^level corners, as far as their cost goes.
struct Subtree {
  double ranks = 1;
  double us = 0;  // of the rank with the most to do, both ways
};

class Cost {
 public:
  Cost(const Spec& spec, const Topology& topology)
      : spec_(spec), topology_(topology), cube_(topology.size()) {}

  // From this corner on. Corners with two ranks come first, so most subtrees have two equal halves.
  [[nodiscard]] Subtree under(int32_t corners, int32_t first) const {
    if (corners == 1) return first < cube_.extra ? meet({}, {}, false) : Subtree{};
    const int32_t half = corners / 2;
    const bool is_even = first >= cube_.extra || first + corners <= cube_.extra;
    const Subtree left = under(half, first);
    return meet(left, is_even ? left : under(half, first + half), stays_in_hosts(topology_, cube_, half));
  }

 private:
  [[nodiscard]] Subtree meet(const Subtree& left, const Subtree& right, bool is_local) const {
    const double both = left.ranks + right.ranks;
    return {.ranks = both,
            .us = std::max(left.us + exchange_us(left.ranks, right.ranks, is_local),
                           right.us + exchange_us(right.ranks, left.ranks, is_local))};
  }

  // Of one of `own` ranks that meet `others` ranks.
  [[nodiscard]] double exchange_us(double own, double others, bool is_local) const {
    const double both = own + others;
    const auto kept = static_cast<int64_t>(static_cast<double>(spec_.count) / both);
    const auto given = static_cast<int64_t>(static_cast<double>(spec_.count) * others / own / both);
    // Shares of unequal subtrees overlap: there are own + others - 1 pairs of ranks at most.
    const double messages = own == others ? 1 : std::ceil((both - 1) / own);
    const auto one_way = [&](double bytes) {
      Phase phase = is_local ? Phase{.local_messages = 1, .local_bytes = bytes} : anywhere(topology_, bytes);
      phase.local_messages *= messages;
      phase.remote_messages *= messages;
      return phase_us(topology_, phase);
    };
    const int64_t most = std::max(kept, given);
    return one_way(partial_bytes_of(spec_, most)) + one_way(bytes_of(spec_, most)) +
           reduce_us(topology_, bytes_of(spec_, kept));
  }

  const Spec& spec_;
  const Topology& topology_;
  Hypercube cube_;
};

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.op == ReduceOp::kAdasum) return std::nullopt;
  return Cost(spec, topology).under(Hypercube(topology.size()).size, 0).us;
}

// The buffer is sent in chunks of half the usual size. One is shared while the next one is reduced, so that
// the link stays busy despite a late rank or a long latency, and at most two chunks are in flight to each
// rank. Larger ones arrive in bursts that overflow the queues: between 8 hosts of 1 Gbit/s, 64 MiB took 1.02
// s with chunks of 128 KiB and 1.05 s with 256 KiB; 16 MiB took 255 ms with 256 KiB and 345 ms with 1 MiB.
class Halving {
 public:
  Halving(Builder& builder, const Spec& spec, const Topology& topology, Rank me)
      : builder_(builder),
        spec_(spec),
        ranks_(topology.size()),
        me_(me),
        line_(elements_of_line(spec.dtype)) {
    const int32_t size = floor_power_of_two(ranks_);
    const bool is_even = size == ranks_;
    const int64_t block = (spec.count + size - 1) / size;
    Topology by_block = topology;
    // Where subtrees are unequal, a chunk goes in more and shorter messages, so it may be twice as large.
    by_block.chunk_bytes = std::max<int64_t>(1, topology.chunk_bytes / (is_even ? 2 : 1) / size);
    const int64_t meetings = (is_even ? 1 : 3) * ceil_log2(ranks_);  // of a rank, about
    const Chunks chunks = Chunks::plan(spec, by_block, block, 4 * meetings + 3);
    chunks_ = {.chunk_elements = chunks.chunk_elements * size, .rounds = chunks.rounds};
  }

  void run() {
    const int64_t need = ranks_ > 1 ? spec_.count : 0;
    sums_ = can_accumulate_in_output(spec_) ? output(0, spec_.count) : builder_.scratch(need);
    theirs_ = builder_.scratch(is_commutative(spec_.op) ? 0 : need);
    ScatterPlace here, before;  // of this round, and of the one before; the last chunk may be shorter
    int64_t lines = -1;
    for (int64_t round = 0; round <= chunks_.rounds; ++round) {
      const bool halves = round<chunks_.rounds, shares = round> 0;
      if (shares) before = here;
      if (halves && std::exchange(lines, lines_of(round)) != lines) here = scatter_place(ranks_, me_, lines);
      const size_t levels = here.levels.size();
      for (size_t step = 0; step <= levels; ++step) {
        if (halves && step < levels) halve(round, here.levels[step]);
        if (shares && step > 0) share(round - 1, before.levels[levels - step]);
      }
      if (halves) deliver(round, here);
    }
  }

 private:
  void halve(int64_t round, const std::vector<Meeting>& meetings) {
    for (const Meeting& one : meetings)
      builder_.send(one.peer, range(one.have_sums ? sums_.buffer : Buffer::kInput, round, one.given));
    for (const Meeting& one : meetings) {
      if (one.kept.is_empty()) continue;
      const Operand own = mine(range(one.have_sums ? sums_.buffer : Buffer::kInput, round, one.kept));
      const Operand got =
          from_peer(one.peer, one.peer_has_sums ? builder_.wire_of(sums_) : WireType::kElement);
      combine(builder_, spec_.op, one.am_left ? own : got, one.am_left ? got : own,
              recv_slice(round, one.kept));
    }
  }

  void deliver(int64_t round, const ScatterPlace& place) {
    for (const Lines& kept : place.kept)
      builder_.deliver(range(Buffer::kOutput, round, kept),
                       range(ranks_ > 1 ? sums_.buffer : Buffer::kInput, round, kept));
  }

  void share(int64_t round, const std::vector<Meeting>& meetings) {
    for (const Meeting& one : meetings) builder_.send(one.peer, range(Buffer::kOutput, round, one.kept));
    for (const Meeting& one : meetings) builder_.recv(one.peer, range(Buffer::kOutput, round, one.given));
  }

  [[nodiscard]] Slice chunk(Buffer buffer, int64_t round) const {
    return chunks_.of({buffer, 0, spec_.count}, round);
  }

  [[nodiscard]] int64_t lines_of(int64_t round) const {
    return (chunk(Buffer::kInput, round).count + line_ - 1) / line_;
  }

  [[nodiscard]] Slice range(Buffer buffer, int64_t round, const Lines& lines) const {
    const Slice whole = chunk(buffer, round);
    const int64_t base = buffer == Buffer::kScratch ? sums_.begin : 0;
    const int64_t begin = std::min(whole.count, lines.begin * line_);
    const int64_t end = std::min(whole.count, lines.end * line_);
    return {buffer, base + whole.begin + begin, end - begin};
  }

  [[nodiscard]] CombineTarget recv_slice(int64_t round, const Lines& lines) const {
    const Slice to = range(sums_.buffer, round, lines);
    if (theirs_.count == 0) return {.to = to, .recv_slice = {}};
    const int64_t base = sums_.buffer == Buffer::kScratch ? sums_.begin : 0;
    return {.to = to, .recv_slice = part(theirs_, to.begin - base, to.count)};
  }

  Builder& builder_;
  const Spec& spec_;
  Rank ranks_, me_;
  int64_t line_;  // elements
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
