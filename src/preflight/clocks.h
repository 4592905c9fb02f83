// How far the clocks of hosts are apart, from barriers. Pure.
//
// No rank leaves a barrier before all have entered it. So in true time every end comes after every start, and
// with o the offset of a host's clock: start_j - end_0 <= o_j - o_0 <= end_j - start_0. Each barrier narrows
// the interval, which is certain whatever the network did.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rueda::preflight {

struct ClockOffset {
  double us = 0;        // of this host's clock from that of the median host; positive: it is ahead
  double error_us = 0;  // the truth is at most so far from `us`
};

// stamps: [hosts][barriers][start, end], in microseconds since 1970. At least one barrier.
std::vector<ClockOffset> clock_offsets(std::span<const int64_t> stamps, int hosts);

}  // namespace rueda::preflight
