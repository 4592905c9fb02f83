// Bruck's alltoall: in step k every block whose distance to its destination has bit k set moves 2^k ranks on;
// for small even blocks. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems" (1997). Steps: ceil(log2 n). Bytes sent per rank: about n/2 log2 n blocks.
#include <algorithm>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace alltoall_bruck {
namespace {

bool is_even(const Spec& spec) {
  return std::all_of(spec.counts.begin(), spec.counts.end(),
                     [&](int64_t c) { return c == spec.counts.front(); });
}

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (!is_even(spec)) return std::nullopt;
  const double half = topology.size() / 2.0 * bytes_of(spec, spec.counts.front());
  return ceil_log2(topology.size()) *
             (phase_us(topology, anywhere(topology, half)) + copy_us(topology, half)) +
         copy_us(topology, 2 * half);
}

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  const Rank n = topology.size();
  const int64_t count = spec.counts.front();
  // held[i]: the block that must move i places in total. It has moved all of them once every bit of
  // i is handled.
  std::vector<Slice> held;
  for (Rank i = 0; i < n; ++i) held.push_back(input(mod(me + i, n) * count, count));
  for (Rank distance = 1; distance < n; distance *= 2) {
    std::vector<Rank> moving;
    for (Rank i = 0; i < n; ++i)
      if ((i & distance) != 0) moving.push_back(i);
    const auto total = static_cast<int64_t>(moving.size()) * count;
    const Slice packed = builder.scratch(total);
    const Slice got = builder.scratch(total);
    for (size_t i = 0; i < moving.size(); ++i)
      builder.copy(part(packed, static_cast<int64_t>(i) * count, count), held[moving[i]]);
    builder.send(mod(me + distance, n), packed);
    builder.recv(mod(me - distance, n), got);
    for (size_t i = 0; i < moving.size(); ++i)
      held[moving[i]] = part(got, static_cast<int64_t>(i) * count, count);
  }
  for (Rank i = 0; i < n; ++i) builder.copy(output(mod(me - i, n) * count, count), held[i]);
  return builder.take("bruck");
}

}  // namespace
}  // namespace alltoall_bruck

const Algorithm kAlltoallBruck{.name = "bruck",
                               .what = Collective::kAlltoall,
                               .preserves_order = PreservesOrder::kAlways,
                               .cost_us = alltoall_bruck::cost_us,
                               .build = alltoall_bruck::build};

}  // namespace rueda::schedule
