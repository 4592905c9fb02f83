#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "rueda/base/check.h"

namespace rueda::bench {

double percentile(std::span<const double> values, double share) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  const size_t index = std::clamp<size_t>(rank, 1, sorted.size()) - 1;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(index));
  return sorted[index];
}

Summary summarise(std::span<const double> values) {
  if (values.empty()) return {};
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.min = percentile(values, 0),
          .median = percentile(values, 0.5),
          .mean = sum / static_cast<double>(values.size()),
          .p90 = percentile(values, 0.9),
          .p99 = percentile(values, 0.99),
          .p999 = percentile(values, 0.999),
          .max = percentile(values, 1)};
}

std::vector<double> call_times_us(std::span<const int64_t> starts, std::span<const int64_t> ends, int ranks,
                                  bool is_clock_shared) {
  RUEDA_CHECK(ranks > 0 && starts.size() == ends.size() && starts.size() % static_cast<size_t>(ranks) == 0,
              "every rank reports a start and an end of every iteration");
  const size_t iterations = starts.size() / static_cast<size_t>(ranks);
  std::vector<double> times;
  for (size_t i = 0; i < iterations; ++i) {
    int64_t last_start = starts[i], last_end = ends[i], longest = 0;
    for (size_t at = i; at < starts.size(); at += iterations) {
      last_start = std::max(last_start, starts[at]);
      last_end = std::max(last_end, ends[at]);
      longest = std::max(longest, ends[at] - starts[at]);
    }
    times.push_back(static_cast<double>(is_clock_shared ? last_end - last_start : longest) / 1e3);
  }
  return times;
}

double algorithm_bandwidth(int64_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0;
}

double bus_factor(std::string_view collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (collective == "allreduce") return 2 * share;
  if (collective == "broadcast") return 1;
  if (collective == "barrier") return 0;
  return share;  // allgather, reducescatter, alltoall
}

std::string histogram(std::span<const double> us) {
  constexpr size_t kBarWidth = 40;
  std::map<int, size_t> bins;  // lower edge 2^(key/2) us
  for (const double value : us) ++bins[static_cast<int>(std::floor(2 * std::log2(std::max(value, 1e-3))))];
  size_t most = 1;
  for (const auto& [bin, count] : bins) most = std::max(most, count);
  std::string text;
  for (const auto& [bin, count] : bins)
    text +=
        fmt::format("{:>10.2f} .. {:>10.2f} us {:>8} |{}\n", std::exp2(bin / 2.0), std::exp2((bin + 1) / 2.0),
                    count, std::string((count * kBarWidth + most - 1) / most, '#'));
  return text;
}

}  // namespace rueda::bench
