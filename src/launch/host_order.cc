#include "launch/host_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

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

// From each host to the one that it reaches fastest, and then soonest. Turned so that it begins with host 0.
std::vector<int> greedy_order(const HostPairs& pairs, int first) {
  std::vector<int> order = given_order(pairs.hosts());
  std::swap(order[0], order[static_cast<size_t>(first)]);
  for (auto next = order.begin() + 1; next != order.end(); ++next) {
    const auto key = [&](int host) {
      const PairLink& link = pairs.between(*(next - 1), host);
      return std::tuple(-link.rate, link.latency_ns, host);
    };
    std::iter_swap(next, std::ranges::min_element(next, order.end(), {}, key));
  }
  std::ranges::rotate(order, std::ranges::find(order, 0));
  return order;
}

// What some links of a ring are worth: first what sets the pace.
template <size_t kLinks>
auto worth_of(const std::array<PairLink, kLinks>& links) {
  std::array<double, kLinks> rates{};
  int64_t latency_ns = 0;
  for (size_t i = 0; i < kLinks; ++i) {
    rates[i] = links[i].rate;
    latency_ns += links[i].latency_ns;
  }
  std::ranges::sort(rates);
  return std::tuple(rates, -latency_ns);
}

// An order of hosts, and two ways to improve it. Both replace some links of the ring, and the others stay; so
// comparing what leaves with what comes compares the rings.
class Improver {
 public:
  Improver(const HostPairs& pairs, std::vector<int> order) : pairs_(pairs), order_(std::move(order)) {}

  std::vector<int> run() {
    constexpr int kMostSweeps = 100;
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      const bool is_turned = turn_parts();
      if (!move_parts() && !is_turned) break;
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] int at(size_t place) const { return order_[place % order_.size()]; }
  [[nodiscard]] auto begin_of(size_t place) { return order_.begin() + static_cast<ptrdiff_t>(place); }
  [[nodiscard]] const PairLink& link(int a, int b) const { return pairs_.between(a, b); }

  // 2-opt (Croes, "A method for solving traveling-salesman problems", 1958): the part between two links is
  // turned round. n^2 steps.
  bool turn_parts() {
    bool is_better = false;
    for (size_t i = 0; i + 2 < order_.size(); ++i)
      for (size_t j = i + 2; j < order_.size(); ++j) {
        const int a = at(i), b = at(i + 1), c = at(j), d = at(j + 1);
        if (a == d) continue;  // the ring's own beginning
        if (worth_of<2>({link(a, c), link(b, d)}) <= worth_of<2>({link(a, b), link(c, d)})) continue;
        std::reverse(begin_of(i + 1), begin_of(j + 1));
        is_better = true;
      }
    return is_better;
  }

  // Or-opt (Or 1976): up to three neighbours move to between two other hosts, as they are or turned round.
  bool move_parts() {
    bool is_better = false;
    for (size_t length = 1; length <= 3; ++length)
      for (size_t i = 1; i + length <= order_.size(); ++i) is_better = move_part(i, length) || is_better;
    return is_better;
  }

  bool move_part(size_t i, size_t length) {
    const int before = at(i - 1), first = at(i), last = at(i + length - 1), behind = at(i + length);
    for (size_t j = 0; j < order_.size(); ++j) {
      if (j + 1 >= i && j < i + length) continue;
      const int a = at(j), b = at(j + 1);
      const auto now = worth_of<3>({link(before, first), link(last, behind), link(a, b)});
      const auto as_it_is = worth_of<3>({link(before, behind), link(a, first), link(last, b)});
      const auto turned = worth_of<3>({link(before, behind), link(a, last), link(first, b)});
      if (std::max(as_it_is, turned) <= now) continue;
      if (turned > as_it_is) std::reverse(begin_of(i), begin_of(i + length));
      if (j < i)
        std::rotate(begin_of(j + 1), begin_of(i), begin_of(i + length));
      else
        std::rotate(begin_of(i), begin_of(i + length), begin_of(j + 1));
      return true;
    }
    return false;
  }

  const HostPairs& pairs_;
  std::vector<int> order_;
};

// How many greedy orders are tried: one for each first host, as long as all of them take some milliseconds.
int starts_for(int hosts) {
  constexpr int64_t kPairs = 20'000;
  return static_cast<int>(std::clamp<int64_t>(kPairs / (int64_t{hosts} * hosts), 1, hosts));
}

bool are_alike(const HostPairs& pairs) {
  const PairLink& first = pairs.between(0, 1);
  for (int a = 0; a < pairs.hosts(); ++a)
    for (int b = 0; b < a; ++b)
      if (pairs.between(a, b) != first) return false;
  return true;
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
  if (pairs.hosts() <= 3 || are_alike(pairs)) return given;  // all rings are alike
  if (pairs.hosts() <= kExactHosts) return exact_order(pairs);
  const auto worth = [&](const std::vector<int>& order) {
    const RingLinks ring = ring_links(pairs, order);
    return std::tuple(ring.slowest_rate, -ring.latency_ns);
  };
  std::vector<int> best = given;
  const auto consider = [&](std::vector<int> order) {
    order = Improver(pairs, std::move(order)).run();
    if (worth(order) > worth(best)) best = std::move(order);
  };
  consider(given);
  for (int first = 0; first < starts_for(pairs.hosts()); ++first) consider(greedy_order(pairs, first));
  return best;
}

}  // namespace rueda::launch
