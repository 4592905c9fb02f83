// Bruck's allgather: each step doubles the number of blocks that a rank holds. For small blocks and any
// number of ranks. Scratch holds the blocks in the order me, me + 1, …; the last step puts them into place.
// Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems"
// (1997). Steps: ceil(log2 n). Bytes sent per rank: n-1 blocks.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace allgather_bruck {
namespace {

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  const Rank n = topology.size();
  const double largest = bytes_of(spec, Blocks::of_counts(spec.counts).largest());
  double total = copy_us(topology, 2 * n * largest);
  for (Rank distance = 1; distance < n; distance *= 2)
    total += phase_us(topology, anywhere(topology, std::min(distance, n - distance) * largest));
  return total;
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const Blocks blocks = Blocks::of_counts(spec.counts);
  if (n == 1) {
    builder.copy(output(0, blocks.total()), input(0, blocks.total()));
    return builder.take("bruck");
  }
  std::vector<int64_t> turned_counts;
  for (Rank i = 0; i < n; ++i) turned_counts.push_back(blocks.count(mod(me + i, n)));
  const Blocks turned = Blocks::of_counts(turned_counts);  // turned block i is block me + i
  const Slice held = builder.scratch(turned.total());
  builder.copy(part(held, 0, turned.count(0)), input(0, turned.count(0)));
  for (Rank distance = 1; distance < n; distance *= 2) {
    const Rank many = std::min(distance, n - distance);
    const int64_t begin = turned.begin(distance);
    builder.send(mod(me - distance, n), part(held, 0, turned.begin(many)));
    builder.recv(mod(me + distance, n), part(held, begin, turned.begin(distance + many) - begin));
  }
  const int64_t upper = turned.begin(n - me);  // elements of blocks me … n-1
  builder.copy(output(blocks.begin(me), upper), part(held, 0, upper));
  builder.copy(output(0, blocks.begin(me)), part(held, upper, blocks.begin(me)));
  return builder.take("bruck");
}

}  // namespace
}  // namespace allgather_bruck

const Algorithm kAllgatherBruck{.name = "bruck",
                                .what = Collective::kAllgather,
                                .preserves_order = PreservesOrder::kAlways,
                                .cost_us = allgather_bruck::cost_us,
                                .build = allgather_bruck::build};

}  // namespace rueda::schedule
