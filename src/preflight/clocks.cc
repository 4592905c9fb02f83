#include "preflight/clocks.h"

#include <algorithm>
#include <limits>

#include "bench/statistics.h"

namespace rueda::preflight {

std::vector<ClockOffset> clock_offsets(std::span<const int64_t> stamps, int hosts) {
  std::vector<ClockOffset> offsets(static_cast<size_t>(hosts));
  if (hosts == 0) return offsets;
  const size_t each = stamps.size() / static_cast<size_t>(hosts);
  std::vector<double> found;
  for (size_t host = 0; host < offsets.size(); ++host) {
    int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i + 1 < each; i += 2) {
      const int64_t start = stamps[host * each + i], end = stamps[host * each + i + 1];
      least = std::max(least, start - stamps[i + 1]);
      most = std::min(most, end - stamps[i]);
    }
    if (host > 0)
      offsets[host] = {.us = static_cast<double>(least + most) / 2,
                       .error_us = std::max(0.0, static_cast<double>(most - least) / 2)};
    found.push_back(offsets[host].us);
  }
  const double median = bench::percentile(found, 0.5);
  const auto middle = static_cast<size_t>(std::ranges::find(found, median) - found.begin());
  const ClockOffset reference = offsets[middle];
  for (size_t host = 0; host < offsets.size(); ++host) {
    offsets[host].us -= reference.us;
    if (host == middle)
      offsets[host].error_us = 0;
    else
      offsets[host].error_us += reference.error_us;
  }
  return offsets;
}

}  // namespace rueda::preflight
