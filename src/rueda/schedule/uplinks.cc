#include "rueda/schedule/uplinks.h"

#include <algorithm>
#include <utility>

namespace rueda::schedule {

Uplinks::Uplinks(std::vector<Tier> tiers) : tiers_(std::move(tiers)) {
  size_t count = 0;
  for (const Tier& tier : tiers_) {
    begin_.push_back(count);
    count += 2 * tier.uplink_gbps.size();
  }
  free_us_.resize(count);
  busy_us_.resize(count);
}

double Uplinks::pass(int32_t from_host, int32_t to_host, double bytes, double first_us, double last_us) {
  const auto through = [&](size_t tier, int32_t at, size_t is_down) {
    const double us = bytes / (tiers_[tier].uplink_gbps[at] * 1e3);
    const size_t uplink = begin_[tier] + 2 * static_cast<size_t>(at) + is_down;
    free_us_[uplink] = std::max(free_us_[uplink], first_us) + us;
    last_us = std::max(last_us, free_us_[uplink]);
    busy_us_[uplink] += us;
  };
  size_t top = 0;  // tiers below it are crossed
  while (top < tiers_.size() && tiers_[top].switch_of[from_host] != tiers_[top].switch_of[to_host]) ++top;
  for (size_t tier = 0; tier < top; ++tier) through(tier, tiers_[tier].switch_of[from_host], 0);
  for (size_t tier = top; tier > 0; --tier) through(tier - 1, tiers_[tier - 1].switch_of[to_host], 1);
  return last_us;
}

}  // namespace rueda::schedule
