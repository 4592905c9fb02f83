#include "rueda/schedule/tree.h"

#include <algorithm>
#include <bit>

namespace rueda::schedule {

Schedule broadcast_along(const Spec& spec, const Chunks& chunks, const TreePlace& place,
                         std::string_view name) {
  Builder builder(spec);
  const bool is_root = place.parent < 0;
  const Slice source = is_root ? input(0, spec.count) : output(0, spec.count);
  for (int64_t round = 0; round < chunks.rounds; ++round) {
    if (!is_root) builder.recv(place.parent, chunks.of(source, round));
    for (Rank child : place.children) builder.send(child, chunks.of(source, round));
  }
  if (is_root) builder.copy(output(0, spec.count), source);
  return builder.take(name);
}

void join_binomial(const std::vector<Rank>& ranks, int32_t my_index, TreePlace& place) {
  const auto n = static_cast<int32_t>(ranks.size());
  const auto top = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(my_index)));  // my highest bit
  if (my_index > 0 && place.parent < 0) place.parent = ranks[my_index - top];
  for (int32_t distance = std::max(1, 2 * top); my_index + distance < n; distance *= 2)
    place.children.push_back(ranks[my_index + distance]);
}

std::vector<std::vector<Rank>> hosts_from(const Topology& topology, Rank root) {
  auto hosts = topology.members();
  std::rotate(hosts.begin(), hosts.begin() + topology.host_of[root], hosts.end());
  auto& first = hosts.front();
  std::rotate(first.begin(), std::find(first.begin(), first.end(), root), first.end());
  return hosts;
}

}  // namespace rueda::schedule
