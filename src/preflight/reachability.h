// Which hosts and links keep a job from starting, from pairs of hosts that have tried to connect. Pure.
#pragma once

#include <span>
#include <utility>
#include <vector>

namespace rueda::preflight {

struct TriedPair {
  int a = 0, b = 0;  // hosts
  bool is_connected = false;
};

struct Reachability {
  std::vector<int> cut;                     // hosts that connect to none of those that they have tried
  std::vector<std::pair<int, int>> broken;  // pairs that do not connect, although both connect to others
  std::vector<int> left_out;                // without these, every pair that was tried connects; sorted
};

// Nothing is blamed where no pair connects: the cause is no single host. A pair that does not connect leaves
// out the host with more such pairs, or the later one.
Reachability judge_reachability(int hosts, std::span<const TriedPair> pairs);

}  // namespace rueda::preflight
