// Specs and topologies that the suites of the schedule module run over.
#pragma once

#include <string>
#include <vector>

#include "rueda/schedule/algorithm.h"

namespace rueda::schedule {

inline Topology hosts_of(std::vector<int32_t> host_of) {
  Topology topology;
  topology.host_of = std::move(host_of);
  return topology;
}

// One host, two and four even ones, one rank a host, uneven ones, ranks dealt out like cards.
inline std::vector<Topology> layouts(Rank n) {
  std::vector<Topology> all{Topology::single_host(n)};
  for (int32_t hosts : {2, 4})
    if (n > hosts && n % hosts == 0) all.push_back(Topology::regular(hosts, n / hosts));
  if (n >= 2) all.push_back(Topology::regular(n, 1));
  if (n >= 3) {
    std::vector<int32_t> uneven;
    for (Rank rank = 0; rank < n; ++rank) uneven.push_back(rank == 0 ? 0 : rank <= n / 2 ? 1 : 2);
    if (n / 2 + 1 >= n) uneven.back() = 1;
    all.push_back(hosts_of(uneven));
    std::vector<int32_t> dealt;
    for (Rank rank = 0; rank < n; ++rank) dealt.push_back(rank % 3 % 2);
    all.push_back(hosts_of(dealt));
  }
  return all;
}

// Counts that sum to about `total`, unevenly: some ranks have none.
inline std::vector<int64_t> uneven_counts(size_t ranks, int64_t total) {
  std::vector<int64_t> counts(ranks);
  for (size_t i = 0; i < ranks; ++i)
    counts[i] = i % 3 == 1 ? 0 : total * static_cast<int64_t>(i % 5 + 1) / static_cast<int64_t>(3 * ranks);
  return counts;
}

inline Spec spec_of(Collective what, Rank n, int64_t count) {
  Spec spec;
  spec.what = what;
  spec.count = count;
  if (what == Collective::kBroadcast) spec.root = n / 2;
  if (what == Collective::kAllgather || what == Collective::kReducescatter)
    spec.counts = uneven_counts(n, count);
  if (what == Collective::kAlltoall) spec.counts = uneven_counts(static_cast<size_t>(n) * n, count);
  if (what == Collective::kReducescatter) {
    spec.count = 0;
    for (int64_t c : spec.counts) spec.count += c;
  }
  if (what == Collective::kBarrier) spec.count = 0;
  return spec;
}

inline std::string describe(const Spec& spec, const Topology& topology) {
  std::string text = std::string(name_of(spec.what)) + " " + std::string(name_of(spec.dtype)) + " " +
                     std::string(name_of(spec.op)) + " count " + std::to_string(spec.count) + " counts";
  for (int64_t count : spec.counts) text += " " + std::to_string(count);
  text += " hosts";
  for (int32_t host : topology.host_of) text += " " + std::to_string(host);
  return text + " chunk " + std::to_string(topology.chunk_bytes);
}

}  // namespace rueda::schedule
