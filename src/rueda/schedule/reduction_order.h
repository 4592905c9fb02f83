// Reductions in a fixed order. The canonical association of a topology, which every order-preserving
// algorithm computes for every element: within each host from the first rank to the last, then the hosts by
// the tree of a hypercube (powers.h), neighbours first,
//   ((x0 + x1) + x2) + ((x3 + x4) + x5)              for hosts {0,1,2} and {3,4,5},
//   (x0 + x1) + (x2 + x3)                            for four hosts of one rank,
//   ((x0 + x1) + x2) + (x3 + x4)                     for five: the first two share a corner.
// It is a tree, because recursive doubling and halving compute a tree in log2 steps, in each of which a host
// receives from one other host.
#pragma once

#include <optional>
#include <vector>

#include "rueda/schedule/builder.h"

namespace rueda::schedule {

// One operand: a slice of mine, or data that a peer sends.
struct Term {
  Rank peer = -1;  // -1 = mine
  Slice own;
  Wire wire = Wire::kElement;

  [[nodiscard]] bool is_mine() const { return peer < 0; }
};

inline Term mine(const Slice& own) { return {.peer = -1, .own = own, .wire = Wire::kElement}; }
inline Term from_peer(Rank peer, Wire wire) { return {.peer = peer, .own = {}, .wire = wire}; }

// Whether the operands may be swapped without changing a bit. (The payload of a NaN does not count.) This is
// not so for Min and Max, because of +0 and -0.
bool is_commutative(ReduceOp op);

// to = left op right. landing is where a left operand is received that cannot be added directly. right must
// not need it. It may be `to` unless right needs that.
struct Landing {
  Slice to, landing;
};
Term combine(Builder& builder, ReduceOp op, const Term& left, const Term& right, const Landing& where);
// A value of mine. If it belongs to a peer, it is received first.
Slice arrived(Builder& builder, const Term& term, const Slice& landing);

// Reduces from left to right. At least one term is needed. A single term of mine stays where it is.
Term reduce_terms(Builder& builder, ReduceOp op, const std::vector<Term>& terms, const Slice& space,
                  std::optional<Slice> last_to = {});

// levels: reduction_levels() slices of scratch. last_to, if given, takes the result of the last addition
// instead.
struct ReductionSpace {
  std::vector<Slice> levels;
  std::optional<Slice> last_to = {};
};
int32_t reduction_levels(const std::vector<std::vector<Rank>>& hosts);
int32_t reduction_levels(int32_t hosts);  // of one term each
// The terms of each host, in rank order.
Slice reduce_host_terms(Builder& builder, ReduceOp op, const std::vector<std::vector<Term>>& hosts,
                        const ReductionSpace& space);

}  // namespace rueda::schedule
