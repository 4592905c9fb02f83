// Which hosts exchange bytes at the same time. Pure.
#pragma once

#include <utility>
#include <vector>

namespace rueda::preflight {

using Pair = std::pair<int, int>;  // two hosts, the lower index first
using Round = std::vector<Pair>;   // no host is in two of them

// A round-robin tournament by the circle method: every pair meets exactly once. n-1 rounds of n/2 pairs for
// an even number of hosts, n rounds of (n-1)/2 pairs for an odd one. Fewer rounds are not possible, because a
// host can be in one pair at a time.
std::vector<Round> tournament(int hosts);

// How many rounds run where the user does not say. Up to kAllPairs hosts: all of them. Beyond that
// 2 ceil(log2 n), which gives every host enough links to be judged by, but leaves links untested.
inline constexpr int kAllPairs = 64;
int default_rounds(int hosts);

// `wanted` of the rounds, evenly spread; all of them if there are no more.
std::vector<Round> sample(const std::vector<Round>& rounds, int wanted);

// Packs pairs, which may share hosts, into at most `most` rounds. Pairs that do not fit are left out.
std::vector<Round> pack(const std::vector<Pair>& pairs, int most);

// The host that meets `host` in the round; -1: none.
int partner_in(const Round& round, int host);

}  // namespace rueda::preflight
