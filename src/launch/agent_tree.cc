#include "launch/agent_tree.h"

#include <algorithm>
#include <cstddef>

#include "rueda/base/check.h"

namespace rueda::launch {

std::vector<int> plan_agent_tree(const std::vector<bool>& can_be_below, int fan_out) {
  RUEDA_CHECK(fan_out >= 0, "a fan-out is a number of hosts");
  std::vector<int> parents(can_be_below.size(), -1), hosts;
  for (size_t host = 0; host < can_be_below.size(); ++host)
    if (can_be_below[host]) hosts.push_back(static_cast<int>(host));
  if (fan_out == 0 && hosts.size() <= kMostWithoutTree) return parents;
  const auto most = static_cast<size_t>(fan_out == 0 ? kUsualFanOut : fan_out);
  // A level's hosts are spread evenly over those of the level above.
  for (size_t begin = 0, above = 0; begin < hosts.size();) {
    const size_t width = begin - above;  // 0: this level is the first
    const size_t end = std::min(hosts.size(), begin + (begin == 0 ? most : width * most));
    for (size_t i = begin; width > 0 && i < end; ++i)
      parents[static_cast<size_t>(hosts[i])] = hosts[above + (i - begin) % width];
    above = begin;
    begin = end;
  }
  return parents;
}

}  // namespace rueda::launch
