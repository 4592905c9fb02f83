// Reductions in a fixed order. The canonical association of a topology, which every order-preserving
// algorithm computes for every element: within each host from the first rank to the last, then from the first
// host to the last,
//   ((x0 + x1) + x2) + ((x3 + x4) + x5)   for hosts {0,1,2} and {3,4,5}.
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
};

inline Term mine(const Slice& own) { return {.peer = -1, .own = own, .wire = Wire::kElement}; }
inline Term from_peer(Rank peer, Wire wire) { return {.peer = peer, .own = {}, .wire = wire}; }

// Swapping the operands changes no bit (of numbers; the payload of a NaN is not kept). Not so for Min and Max
// of +0 and -0.
bool is_commutative(ReduceOp op);

// Folds terms from the left into acc. `last_to`, where given, takes the result of the last addition in place
// of acc.
class Fold {
 public:
  Fold(Builder& builder, ReduceOp op, const Slice& acc) : builder_(builder), op_(op), acc_(acc) {}
  void add(const Term& term, std::optional<Slice> last_to = {});
  // The result: acc, last_to, or the only slice that was added, untouched.
  Slice value();

 private:
  Builder& builder_;
  ReduceOp op_;
  Slice acc_;
  std::optional<Slice> value_;
  std::optional<Term> pending_;  // a first term still on the wire: it may merge with a second one of mine
};

// terms of each host, in rank order; total and partial are scratch of the same size, partial used only when a
// later host has several terms.
struct FoldSpace {
  Slice total = {}, partial = {};
  std::optional<Slice> last_to = {};
};
Slice fold_hosts(Builder& builder, ReduceOp op, const std::vector<std::vector<Term>>& hosts,
                 const FoldSpace& space);

}  // namespace rueda::schedule
