#include "preflight/reachability.h"

#include <algorithm>

namespace rueda::preflight {

Reachability judge_reachability(int hosts, std::span<const TriedPair> pairs) {
  Reachability reachability;
  std::vector<int> tried(static_cast<size_t>(hosts)), connected(static_cast<size_t>(hosts));
  for (const TriedPair& pair : pairs)
    for (const int host : {pair.a, pair.b}) {
      ++tried[static_cast<size_t>(host)];
      connected[static_cast<size_t>(host)] += pair.is_connected ? 1 : 0;
    }
  if (std::ranges::all_of(connected, [](int count) { return count == 0; })) return reachability;
  for (int host = 0; host < hosts; ++host)
    if (tried[static_cast<size_t>(host)] > 0 && connected[static_cast<size_t>(host)] == 0)
      reachability.cut.push_back(host);
  reachability.left_out = reachability.cut;
  const auto is_left_out = [&](int host) {
    return std::ranges::find(reachability.left_out, host) != reachability.left_out.end();
  };
  std::vector<int> broken(static_cast<size_t>(hosts));
  for (const TriedPair& pair : pairs) {
    if (pair.is_connected || is_left_out(pair.a) || is_left_out(pair.b)) continue;
    reachability.broken.emplace_back(pair.a, pair.b);
    for (const int host : {pair.a, pair.b}) ++broken[static_cast<size_t>(host)];
  }
  std::vector<int> worst_first;
  for (int host = hosts; host-- > 0;) worst_first.push_back(host);
  std::ranges::stable_sort(worst_first, std::greater<>(),
                           [&](int host) { return broken[static_cast<size_t>(host)]; });
  for (const int host : worst_first) {
    const bool is_needed = std::ranges::any_of(reachability.broken, [&](const std::pair<int, int>& pair) {
      return (pair.first == host || pair.second == host) && !is_left_out(pair.first) &&
             !is_left_out(pair.second);
    });
    if (is_needed) reachability.left_out.push_back(host);
  }
  std::ranges::sort(reachability.left_out);
  return reachability;
}

}  // namespace rueda::preflight
