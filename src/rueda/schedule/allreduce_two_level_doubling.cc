// Two-level recursive doubling, for small buffers on hosts of several ranks: one rank of each host (the
// entry) reduces what its host has in rank order, the entries of all hosts exchange whole sums at distance 1,
// 2, 4, … (allreduce_recursive_doubling.cc), and each gives its host the result. A larger buffer is cut into
// as many blocks as the largest host has ranks, and each has entries of its own. Order preserving.
// Steps: 2 in the host, log2 H between H hosts, two more if H is not a power of two. Bytes between hosts, per
// host: S log2 H. A rank has messages of its host and of log2 H others, so with a thousand ranks it needs few
// connections.
#include <algorithm>
#include <ranges>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/doubling.h"
#include "rueda/schedule/reduction_order.h"

namespace rueda::schedule {
namespace allreduce_two_level_doubling {
namespace {

// Phases follow one another here, while those of two_level overlap chunk by chunk: larger blocks are charged
// twice.
constexpr double kOneChunkBytes = 64 << 10;

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const int32_t locals = largest_host(topology);
  if (spec.op == ReduceOp::kAdasum || topology.is_single_host() || locals == 1) return std::nullopt;
  const Blocks blocks = Blocks::even(spec.count, locals, spec.dtype);
  const double bytes = bytes_of(spec, blocks.largest());
  const auto busy = static_cast<int32_t>(
      std::ranges::count_if(std::views::iota(0, locals), [&](int32_t b) { return blocks.count(b) > 0; }));
  const Phase in_host{.local_messages = locals - 1.0, .local_bytes = (locals - 1.0) * bytes};
  const Phase between{.remote_messages = 1,
                      .remote_bytes = partial_bytes_of(spec, blocks.largest()),
                      .streams = std::max(busy, 1)};
  const Hypercube cube(topology.host_count());
  const double steps = ceil_log2(cube.size) + (cube.extra > 0 ? 2 : 0);
  const double us = 2 * phase_us(topology, in_host) + reduce_us(topology, bytes * locals) +
                    steps * (phase_us(topology, between) + reduce_us(topology, bytes));
  return bytes > kOneChunkBytes ? 2 * us : us;
}

class Hosts {
 public:
  Hosts(Builder& builder, const Spec& spec, const Topology& topology, Rank me)
      : builder_(builder),
        spec_(spec),
        me_(me),
        here_(topology.host_of[me]),
        hosts_(topology.members()),
        blocks_(Blocks::even(spec.count, largest_host(topology), spec.dtype)) {}

  void build() {
    contribute();
    for (int32_t block = 0; block < blocks_.size(); ++block)
      if (entry(here_, block) == me_) sum(block);
    share();
  }

 private:
  [[nodiscard]] const std::vector<Rank>& my_host() const { return hosts_[here_]; }
  [[nodiscard]] Rank entry(Rank host, int32_t block) const {
    const auto& ranks = hosts_[host];
    return ranks[block % static_cast<int32_t>(ranks.size())];
  }
  [[nodiscard]] Slice in(int32_t block) const { return input(blocks_.begin(block), blocks_.count(block)); }
  [[nodiscard]] Slice out(int32_t block) const { return output(blocks_.begin(block), blocks_.count(block)); }
  // How a host's own sum travels: alone on its host, a rank sends its input.
  [[nodiscard]] WireType first_wire(Rank host) const {
    return hosts_[host].size() == 1 ? WireType::kElement : WireType::kAccumulator;
  }

  void contribute() {
    for (int32_t block = 0; block < blocks_.size(); ++block)
      if (const Rank to = entry(here_, block); to != me_) builder_.send(to, in(block));
  }

  [[nodiscard]] Slice sum_of_host(int32_t block) {
    if (my_host().size() == 1) return in(block);
    std::vector<Operand> operands;
    for (const Rank rank : my_host())
      operands.push_back(rank == me_ ? mine(in(block)) : from_peer(rank, WireType::kElement));
    return reduce_operands(builder_, spec_.op, operands, builder_.scratch(blocks_.count(block))).own;
  }

  void sum(int32_t block) {
    if (blocks_.count(block) == 0) return;
    const Doubling among{.places = static_cast<Rank>(hosts_.size()),
                         .me = here_,
                         .rank_of = [this, block](Rank host) { return entry(host, block); },
                         .wire_of = [this](Rank host) { return first_wire(host); }};
    exchange_sums(builder_, spec_.op, among, sum_of_host(block), out(block));
  }

  void share() {
    for (int32_t block = 0; block < blocks_.size(); ++block) {
      const Rank from = entry(here_, block);
      if (from != me_) {
        builder_.recv(from, out(block));
        continue;
      }
      for (const Rank rank : my_host())
        if (rank != me_) builder_.send(rank, out(block));
    }
  }

  Builder& builder_;
  const Spec& spec_;
  Rank me_;
  Rank here_;  // my host
  std::vector<std::vector<Rank>> hosts_;
  Blocks blocks_;
};

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Hosts(builder, spec, topology, me).build();
  return builder.take("two_level_doubling");
}

}  // namespace
}  // namespace allreduce_two_level_doubling

const Algorithm kAllreduceTwoLevelDoubling{.name = "two_level_doubling",
                                           .what = Collective::kAllreduce,
                                           .preserves_order = PreservesOrder::kAlways,
                                           .cost_us = allreduce_two_level_doubling::cost_us,
                                           .build = allreduce_two_level_doubling::build};

}  // namespace rueda::schedule
