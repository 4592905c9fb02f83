// Turns times into the numbers that are printed. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

// The percentile `share` (0..1) by the nearest-rank method, so it is always one of the values. They may be in
// any order. 0 if there are none.
double percentile(std::span<const double> values, double share);

struct Summary {
  double min = 0, median = 0, mean = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};
Summary summarise(std::span<const double> values);

// The time of the operation in each iteration, in microseconds. starts, ends: [ranks * iterations],
// rank-major, in nanoseconds. With a shared clock it is the time from the last start to the last end,
// otherwise the longest of the times that the ranks measured.
std::vector<double> call_times_us(std::span<const int64_t> starts, std::span<const int64_t> ends, int ranks,
                                  bool is_clock_shared);

// Bandwidths as nccl-tests defines them, in gigabytes (1e9 bytes) per second. `bytes`: the whole buffer of a
// rank; for allgather its output, for reducescatter its input, for alltoall what it sends to all ranks.
double algorithm_bandwidth(int64_t bytes, double us);
// A link must carry the algorithm bandwidth times this factor. A barrier carries nothing, so its factor is 0.
double bus_factor(std::string_view collective, int ranks);

// Lines "   1.00 ..    1.41 us      123 |######": two bins for each doubling, bars of at most 40.
std::string histogram(std::span<const double> us);

}  // namespace rueda::bench
