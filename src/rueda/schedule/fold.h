// Reductions in a fixed order. The canonical association of a topology, which every order-preserving
// algorithm computes for every element: within each host from the first rank to the last, then the hosts by
// the tree of a hypercube (powers.h), neighbours first,
//   ((x0 + x1) + x2) + ((x3 + x4) + x5)              for hosts {0,1,2} and {3,4,5},
//   (x0 + x1) + (x2 + x3)                            for four hosts of one rank,
//   ((x0 + x1) + x2) + (x3 + x4)                     for five: the first two share a corner.
// A tree, because recursive doubling and halving compute it in log2 steps, in which each host hears one
// other.
#pragma once

#include <optional>
#include <vector>

#include "rueda/schedule/builder.h"

namespace rueda::schedule {

// One operand: a slice of mine, or what a peer sends.
struct Term {
  Rank peer = -1;  // -1: mine
  Slice own;
  Wire wire = Wire::kElement;

  [[nodiscard]] bool is_mine() const { return peer < 0; }
};

inline Term mine(const Slice& own) { return {.peer = -1, .own = own, .wire = Wire::kElement}; }
inline Term from_peer(Rank peer, Wire wire) { return {.peer = peer, .own = {}, .wire = wire}; }

// Swapping the operands changes no bit (of numbers; the payload of a NaN is not kept). Not so for Min and Max
// of +0 and -0.
bool is_commutative(ReduceOp op);

// to = left op right. landing takes a left operand that has to be received before it can be added; it is no
// slice that right needs, and may be `to` where that is not.
struct Landing {
  Slice to, landing;
};
Term combine(Builder& builder, ReduceOp op, const Term& left, const Term& right, const Landing& where);
// A value of mine, received where it was a peer's.
Slice arrived(Builder& builder, const Term& term, const Slice& landing);

// From the left; needs a term. A single term of mine stays where it is.
Term fold(Builder& builder, ReduceOp op, const std::vector<Term>& terms, const Slice& space,
          std::optional<Slice> last_to = {});

// levels: fold_levels() pieces of scratch. last_to takes the result of the last addition in place of them.
struct FoldSpace {
  std::vector<Slice> levels;
  std::optional<Slice> last_to = {};
};
int32_t fold_levels(const std::vector<std::vector<Rank>>& hosts);
int32_t fold_levels(int32_t hosts);  // of one term each
// terms of each host, in rank order.
Slice fold_hosts(Builder& builder, ReduceOp op, const std::vector<std::vector<Term>>& hosts,
                 const FoldSpace& space);

}  // namespace rueda::schedule
