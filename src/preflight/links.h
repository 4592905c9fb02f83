// Which host and which link is slow, from what pairs of hosts have reached. Pure.
//
// The model: a pair reaches what its slower end allows, unless the link between them is at fault. A host's
// own rate is then the upper quartile of its pairs, which is not disturbed while fewer than a quarter of
// them are slow. A host is slow beside the upper median of all hosts. A link is slow beside what both of its
// ends reach elsewhere, so that the links of a slow host are not blamed as well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rueda::preflight {

struct PairMeasurement {
  int a = 0, b = 0;                                  // hosts, a < b
  double gbit_per_s = 0;                             // each way, both ways at once; of the slower end
  double forth_gbit_per_s = 0, back_gbit_per_s = 0;  // from a to b alone, and from b to a alone
  double round_trip_us = 0;                          // 0 = too short to be told from the noise of calls
  bool is_counted = false;  // the round trip: by the network stack; false: told from calls
  int64_t bytes = 0;        // of the longest exchange, each way
  bool is_right = true;     // every byte arrived as it was sent
  int attempts = 1;         // the best of so many
};

// A share of its reference below which a rate is slow. Pairs of one kind of hardware differ by a few
// per cent; a cable or port at fault halves the rate, or worse.
inline constexpr double kSlowShare = 0.7;
// A latency is long if it is so many times the usual one, and longer by this. Racks and zones differ by less,
// and so do two measurements on busy hosts.
inline constexpr double kLongFactor = 5, kLongerByUs = 2000;

struct RoundTrip {
  double us = 0;
  bool is_counted = false;
};
// counted_us: the shortest round trip that the network stacks of both ends have seen; 0 = they count none.
// calls_us: what 8 bytes add to a call that carries none, which is known to some 100 us only. The first is
// the truth, unless something between the hosts ends their connections and makes its own (a proxy, a tunnel):
// the stack then sees the way to that, and only calls see the whole way.
RoundTrip round_trip_of(double counted_us, double calls_us);

struct SlowHost {
  int host = 0;
  double gbit_per_s = 0, usual = 0;
};
struct SlowLink {
  int a = 0, b = 0;
  double gbit_per_s = 0, expected = 0;
};
struct LongHost {
  int host = 0;
  double us = 0, usual = 0;
};
struct LongLink {
  int a = 0, b = 0;
  double us = 0, expected = 0;
};

struct HostRates {  // 0 = no pair of this host was measured
  double gbit_per_s = 0, least_gbit_per_s = 0;
  double round_trip_us = 0;
  int slowest_with = -1;
};

struct LinkVerdict {
  double usual_gbit_per_s = 0, usual_us = 0;  // 0 = nothing was measured
  std::vector<HostRates> hosts;
  std::vector<SlowHost> slow_hosts;
  std::vector<SlowLink> slow_links;
  std::vector<LongHost> long_hosts;
  std::vector<LongLink> long_links;
};

// With fewer than three hosts nothing can be compared: rates are given, and nobody is blamed.
LinkVerdict judge_links(int hosts, std::span<const PairMeasurement> pairs);

// What one host sends to the other alone; where that was not measured, what both do at once.
double one_way(const PairMeasurement& pair, int from);
// The median of what is sent one way by pairs that the verdict does not blame; of all where it blames all.
double usual_one_way(const LinkVerdict& verdict, std::span<const PairMeasurement> pairs);

// Merges a second measurement of the same pair: the better one counts.
void improve(PairMeasurement& known, const PairMeasurement& again);

}  // namespace rueda::preflight
