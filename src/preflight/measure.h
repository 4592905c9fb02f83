// What the ranks measure, through librueda.so and with its collectives, so that the numbers are those of
// training: over shared memory, TCP or RDMA, whichever the job would use.
#pragma once

#include <string>
#include <vector>

#include "bench/rank.h"
#include "preflight/clocks.h"
#include "preflight/host_facts.h"
#include "preflight/links.h"

namespace rueda::preflight {

struct Measured {
  std::vector<HostFacts> hosts;  // in the order of their first ranks
  std::vector<PairMeasurement> pairs;
  std::vector<double> within_gbit_per_s;  // between two ranks of a host; 0 = it has only one
  std::vector<ClockOffset> clocks;        // empty: there is one host
  int rounds = 0, rounds_for_all = 0;
};

// Collective. The first rank of each host measures pairs of hosts; the others wait. rounds: at most so many;
// 0 = default_rounds(). Only the first ranks get an answer; the others get an empty one.
Result<Measured> measure(bench::Rank& rank, const std::string& own_path, int rounds);

// A pair that takes longer for one exchange is given up: 64 Kbit/s.
inline constexpr double kExchangeLimitS = 20;

}  // namespace rueda::preflight
