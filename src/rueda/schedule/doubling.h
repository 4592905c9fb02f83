// Recursive doubling among places, which are the corners of a hypercube: whole sums are exchanged at distance
// 1, 2, 4, …, and both sides add. A place is a rank, or a host for which one rank takes part.
#pragma once

#include <functional>

#include "rueda/schedule/builder.h"
#include "rueda/schedule/hypercube.h"

namespace rueda::schedule {

struct Doubling {
  Rank places = 1;
  Rank me = 0;                                  // my place
  std::function<Rank(Rank place)> rank_of;      // who takes part for it
  std::function<WireType(Rank place)> wire_of;  // what it sends before it has added anything
};

// own: what this place adds. The output is written last, because it may be the memory of the input.
void exchange_sums(Builder& builder, ReduceOp op, const Doubling& among, const Slice& own, const Slice& out);

}  // namespace rueda::schedule
