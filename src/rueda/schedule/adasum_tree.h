// The tree in which Adasum combines the vectors of n ranks: blocks of 1, 2, 4, … ranks side by side exchange
// their vectors, and every rank combines them itself, the left block's first, so that all ranks compute the
// same bits. Any number of ranks: a block without a partner waits for the next level. Pure.
#pragma once

#include <vector>

#include "rueda/base/types.h"

namespace rueda::schedule {

// One exchange of a rank. All ranks of a block know its vector.
struct AdasumLevel {
  std::vector<Rank> to;  // to whom I send that of my block
  Rank from = 0;         // who sends me that of the other block
  bool is_left = false;  // my block is the left one

  bool operator==(const AdasumLevel&) const = default;
};

// The levels in which rank `me` of n takes part, in their order; at most ceil(log2 n).
std::vector<AdasumLevel> adasum_levels(Rank n, Rank me);

}  // namespace rueda::schedule
