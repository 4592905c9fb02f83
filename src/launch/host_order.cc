#include "launch/host_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace rueda::launch {
namespace {

std::vector<int> given_order(int hosts) {
  std::vector<int> order(static_cast<size_t>(hosts));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Held and Karp, "A dynamic programming approach to sequencing problems" (1962), over links of a least rate:
// what the rest of the ring costs at least, for each set of visited hosts and the last one of them.
// n^2 2^(n-1) steps.
class ExactRing {
 public:
  ExactRing(const HostPairs& pairs, double least_rate)
      : pairs_(pairs), least_rate_(least_rate), all_((1U << static_cast<unsigned>(pairs.hosts() - 1)) - 1) {
    rest_.assign((size_t{all_} + 1) * static_cast<size_t>(pairs.hosts()), kNone);
    for (unsigned visited = all_; visited > 0; --visited)
      for (int last = 1; last < pairs.hosts(); ++last)
        if ((visited & bit(last)) != 0) rest(visited, last) = cheapest(visited, last);
    rest(0, 0) = cheapest(0, 0);
  }

  [[nodiscard]] bool exists() const { return rest_[0] != kNone; }

  // The first of the cheapest ones, in the order of numbers.
  [[nodiscard]] std::vector<int> order() const {
    std::vector<int> order = {0};
    for (unsigned visited = 0; visited != all_; visited |= bit(order.back())) {
      const int last = order.back();
      int next = 1;
      while (through(visited, last, next) != at(visited, last)) ++next;
      order.push_back(next);
    }
    return order;
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // Host 0 begins every ring and needs no bit.
  static unsigned bit(int host) { return 1U << static_cast<unsigned>(host - 1); }
  [[nodiscard]] size_t place(unsigned visited, int last) const {
    return size_t{visited} * static_cast<size_t>(pairs_.hosts()) + static_cast<size_t>(last);
  }
  [[nodiscard]] int64_t at(unsigned visited, int last) const { return rest_[place(visited, last)]; }
  int64_t& rest(unsigned visited, int last) { return rest_[place(visited, last)]; }

  [[nodiscard]] int64_t hop(int from, int to, int64_t then) const {
    const PairLink& link = pairs_.between(from, to);
    return then == kNone || link.rate < least_rate_ ? kNone : link.latency_ns + then;
  }
  [[nodiscard]] int64_t through(unsigned visited, int last, int next) const {
    return (visited & bit(next)) != 0 ? kNone : hop(last, next, at(visited | bit(next), next));
  }
  [[nodiscard]] int64_t cheapest(unsigned visited, int last) const {
    if (visited == all_) return hop(last, 0, 0);
    int64_t least = kNone;
    for (int next = 1; next < pairs_.hosts(); ++next) least = std::min(least, through(visited, last, next));
    return least;
  }

  const HostPairs& pairs_;
  double least_rate_;
  unsigned all_;  // the set of all hosts but 0
  std::vector<int64_t> rest_;
};

std::vector<int> exact_order(const HostPairs& pairs) {
  std::vector<double> rates;
  for (int a = 0; a < pairs.hosts(); ++a)
    for (int b = 0; b < a; ++b) rates.push_back(pairs.between(a, b).rate);
  std::ranges::sort(rates);
  // The slowest link of the best ring is one of them. With the slowest of all, every ring exists.
  size_t found = 0, beyond = rates.size();
  while (beyond - found > 1) {
    const size_t middle = (found + beyond) / 2;
    (ExactRing(pairs, rates[middle]).exists() ? found : beyond) = middle;
  }
  return ExactRing(pairs, rates[found]).order();
}

// From each host to the one that it reaches fastest, and then soonest.
std::vector<int> greedy_order(const HostPairs& pairs) {
  std::vector<int> order = given_order(pairs.hosts());
  for (size_t at = 1; at < order.size(); ++at) {
    const auto key = [&](int host) {
      const PairLink& link = pairs.between(order[at - 1], host);
      return std::tuple(-link.rate, link.latency_ns, host);
    };
    std::iter_swap(
        order.begin() + static_cast<ptrdiff_t>(at),
        std::ranges::min_element(order.begin() + static_cast<ptrdiff_t>(at), order.end(), {}, key));
  }
  return order;
}

// Two links of a ring: first what sets the pace.
auto worth_of(const PairLink& one, const PairLink& other) {
  return std::tuple(std::min(one.rate, other.rate), std::max(one.rate, other.rate),
                    -(one.latency_ns + other.latency_ns));
}

// Croes, "A method for solving traveling-salesman problems" (1958): two links leave the ring, and the part
// between them is turned round. Other links stay, so comparing the two pairs compares the rings. n^2 steps.
bool improve_once(const HostPairs& pairs, std::vector<int>& order) {
  bool is_better = false;
  const size_t hosts = order.size();
  for (size_t i = 0; i + 2 < hosts; ++i)
    for (size_t j = i + 2; j < hosts; ++j) {
      const int a = order[i], b = order[i + 1], c = order[j], d = order[(j + 1) % hosts];
      if (a == d) continue;  // the ring's own beginning
      const auto now = worth_of(pairs.between(a, b), pairs.between(c, d));
      if (worth_of(pairs.between(a, c), pairs.between(b, d)) <= now) continue;
      std::reverse(order.begin() + static_cast<ptrdiff_t>(i) + 1,
                   order.begin() + static_cast<ptrdiff_t>(j) + 1);
      is_better = true;
    }
  return is_better;
}

std::vector<int> improved(const HostPairs& pairs, std::vector<int> order) {
  constexpr int kMostSweeps = 100;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep)
    if (!improve_once(pairs, order)) break;
  return order;
}

}  // namespace

HostPairs::HostPairs(int hosts, const PairLink& usual)
    : hosts_(hosts), links_(static_cast<size_t>(hosts) * static_cast<size_t>(hosts), usual) {}

void HostPairs::set(int a, int b, const PairLink& link) {
  const auto n = static_cast<size_t>(hosts_);
  links_[static_cast<size_t>(a) * n + static_cast<size_t>(b)] = link;
  links_[static_cast<size_t>(b) * n + static_cast<size_t>(a)] = link;
}

RingLinks ring_links(const HostPairs& pairs, std::span<const int> order) {
  RingLinks ring{.slowest_rate = std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < order.size(); ++i) {
    const int from = order[i], to = order[(i + 1) % order.size()];
    const PairLink& link = pairs.between(from, to);
    ring.latency_ns += link.latency_ns;
    if (link.rate >= ring.slowest_rate) continue;
    ring.slowest_rate = link.rate;
    ring.from = from;
    ring.to = to;
  }
  return ring;
}

std::vector<int> best_host_order(const HostPairs& pairs) {
  const std::vector<int> given = given_order(pairs.hosts());
  if (pairs.hosts() <= 3) return given;  // all rings have the same links
  if (pairs.hosts() <= kExactHosts) return exact_order(pairs);
  const auto worth = [&](const std::vector<int>& order) {
    const RingLinks ring = ring_links(pairs, order);
    return std::tuple(ring.slowest_rate, -ring.latency_ns);
  };
  std::vector<int> best = given;
  for (const std::vector<int>& tried : {improved(pairs, given), improved(pairs, greedy_order(pairs))})
    if (worth(tried) > worth(best)) best = tried;
  return best;
}

}  // namespace rueda::launch
