// Hypercube algorithms on any number of ranks. The ranks beyond the largest power of two first add their
// data to a neighbour, and receive the result at the end. Among the first 2 * extra ranks, the odd ones take
// part for both.
#pragma once

#include "rueda/schedule/blocks.h"

namespace rueda::schedule {

struct Hypercube {
  int32_t size = 1;   // the largest power of two ≤ ranks
  int32_t extra = 0;  // ranks that fold in

  explicit Hypercube(Rank ranks) : size(floor_power_of_two(ranks)), extra(ranks - size) {}

  [[nodiscard]] bool folds_in(Rank rank) const { return rank < 2 * extra && rank % 2 == 0; }
  [[nodiscard]] bool takes_one_in(Rank rank) const { return rank < 2 * extra && rank % 2 == 1; }
  [[nodiscard]] int32_t corner_of(Rank rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  [[nodiscard]] Rank rank_at(int32_t corner) const {
    return corner < extra ? 2 * corner + 1 : corner + extra;
  }
};

}  // namespace rueda::schedule
