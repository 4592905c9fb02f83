// How any number of ranks reduce and scatter a buffer along the tree of a hypercube (hypercube.h), so that
// every rank sends, receives and keeps about as much as any other.
//
// The canonical order fixes for each element which two partial sums are added, and which of them stands left.
// It does not fix where they are added. When two subtrees of l and r ranks meet, the sums of each lie
// scattered over its ranks; for every element the one rank on the left and the one on the right that have it
// decide which of them adds. If the left ones add l / (l + r) of what they have and the right ones the rest,
// each of the l + r ranks keeps an equal share, whether l and r are equal or not. So two ranks of one corner
// share its work, and no rank has to take in a whole buffer for another one. A rank sends what it does not
// keep, (n - 1) / n of the buffer altogether.
//
// Three ranks, 0 and 1 in one corner:   [ 0 1 2 3 4 5 ]  lines
//   0 and 1 meet:                         0 0 0 1 1 1
//   they meet 2, which has all:           0 0 2 2 1 1
// Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::schedule {

// [begin, end), in cache lines of the buffer.
struct Lines {
  int64_t begin = 0, end = 0;
  [[nodiscard]] bool is_empty() const { return begin >= end; }
};

// One other rank that has the same part of the buffer as I when two subtrees meet.
struct Meeting {
  Rank peer = -1;
  bool am_left = false;
  Lines kept, given;       // of that part, by me: I add what I keep, the peer adds what I give
  bool have_sums = false;  // what I give are sums, not my input
  bool peer_has_sums = false;
};

struct ScatterPlace {
  // [level]: of the two ranks of a corner, then of corners at distance 1, 2, 4, …. In ascending order of the
  // lines, so that both sides list their meetings with one another in the same order.
  std::vector<std::vector<Meeting>> levels;
  std::vector<Lines> kept;  // at the end
};
ScatterPlace scatter_place(Rank ranks, Rank me, int64_t lines);

}  // namespace rueda::schedule
