// From times to what is printed. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

// The value below which `share` (0..1) of the values lie, by the nearest rank: always one of them.
// 0 for none. Takes them in any order.
double percentile(std::span<const double> values, double share);

struct Summary {
  double min = 0, median = 0, mean = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};
Summary summarise(std::span<const double> values);

// What one operation took, in microseconds, of each iteration. starts, ends: [ranks * iterations],
// rank-major, nanoseconds. With a shared clock it is from the last start to the last end; else the longest of
// the ranks' own times.
std::vector<double> call_times_us(std::span<const int64_t> starts, std::span<const int64_t> ends, int ranks,
                                  bool is_clock_shared);

// nccl-tests' definitions. `bytes`: the whole buffer of a rank; for allgather its output, for reducescatter
// its input, for alltoall what it sends to all. Gigabytes (1e9 bytes) a second.
double algorithm_bandwidth(int64_t bytes, double us);
// What a link must carry: algorithm bandwidth times this. A barrier carries nothing: 0.
double bus_factor(std::string_view collective, int ranks);

// Lines "   1.00 ..    1.41 us      123 |######": two bins for each doubling, bars of at most 40.
std::string histogram(std::span<const double> us);

}  // namespace rueda::bench
