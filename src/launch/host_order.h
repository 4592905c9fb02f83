// In which order a job is best given its hosts, where their links differ. Ranks are placed one host after the
// other and rank order is ring order, so the order of hosts decides which of them are neighbours in a ring,
// and the slowest of those links sets its pace. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rueda::launch {

// Between two hosts, in either direction.
struct PairLink {
  double rate = 0;  // in any unit that is the same for all
  int64_t latency_ns = 0;
  bool operator==(const PairLink&) const = default;
};

class HostPairs {  // [hosts][hosts]
 public:
  HostPairs(int hosts, const PairLink& usual);
  void set(int a, int b, const PairLink& link);
  [[nodiscard]] int hosts() const { return hosts_; }
  [[nodiscard]] const PairLink& between(int a, int b) const {
    return links_[static_cast<size_t>(a) * static_cast<size_t>(hosts_) + static_cast<size_t>(b)];
  }

 private:
  int hosts_;
  std::vector<PairLink> links_;
};

// The link of a ring that sets its pace, and how long a small message takes around it.
struct RingLinks {
  double slowest_rate = 0;
  int64_t latency_ns = 0;
  int from = 0, to = 0;  // the ends of the slowest link
};
RingLinks ring_links(const HostPairs& pairs, std::span<const int> order);

inline constexpr int kExactHosts = 12;

// The order with the fastest slowest link; among those the one with the lowest latency around the ring, and
// then the one that is closest to 0, 1, 2 … It begins with host 0. Exact up to kExactHosts; with more hosts
// the best of several greedy orders that are improved by exchanging links, and never worse than 0, 1, 2 …
std::vector<int> best_host_order(const HostPairs& pairs);

}  // namespace rueda::launch
